"""Say what is wrong and what to do, once: every face shows the findings of this package, in these words.

    facts     `Facts`: what is known of an agent, each thing read once and only when it is asked for;
              `sending`: why no text of it is sent
    check     `check(facts)`: the findings of an agent, most urgent first; `check_common`: of what all share
    conditions
              what may be wrong with an agent: a function for each code, which yields whole findings
    answerer  `Answerer`: a search and what is wrong, as the faces and the query worker ask it

What a call meets by itself (a question that cannot be embedded, say) is a finding that it makes itself; an
error is one by its code and hint (`memline.shared.finding.of_error`).
"""
