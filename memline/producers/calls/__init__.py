"""List what can be asked of Memline, once for all faces: names, parameters, words and audit lines."""
