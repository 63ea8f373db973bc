"""Say what is wrong and what to do, once: every face shows the findings of this package, in these words.

What a call meets by itself, as a question that cannot be embedded, is a finding that it makes itself; an
error is one by its code and hint (`memline.shared.finding.of_error`).
"""
