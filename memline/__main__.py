"""Run the command line as `python -m memline`, where the console script is not on the path."""

from memline.producers.start import main

if __name__ == "__main__":
    main()
