"""Say what is wrong and what to do, once: every face shows the findings of this package, in these words.

    diagnosis  `of_agent`, `of_common` of its machine and fleet, `of_error`: rows, Redis and disk in, a list
               of findings out, most urgent first
    answerer   `Answerer`: a search and what is wrong, as the faces and the query worker ask it; its
               `is_quiet` is the cheap look at the rows after which a search loads nothing of the rest
    facts      what conditions ask, each thing read once and only when it is asked for
    table      `finding`, which makes a row of the table: level, words, action, page, and the condition
    of_*       the rows: problems, then warnings, then notes, and within a level in the order of the rows

A new finding is one function in one of the `of_` modules.
"""
