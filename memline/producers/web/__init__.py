"""The dashboard of `memline serve` at `/ui`: server-rendered pages that work without script.

To add a page: write a module here, or extend the one whose pages are akin. It has a data function that
takes a `View` (page.py: who asks, which agents that opens, the query, the path) and returns the names its
template uses, read with the functions that the command of the same words calls; a template
in `templates/` that extends `layout.html`; and `PAGES`, a tuple of `Page` records. Add the module to
`MODULES` in dashboard.py: routes and navigation follow. `is_for_all=True` keeps a page from tokens of one
agent, `needs_queue=True` from a server without Redis. A data function runs in a thread of the server's
pool.

A part that follows the state is `<section data-fragment="rows" data-topics="queues">{% block rows %}…{%
endblock %}</section>`: when the server says that a topic (snapshot.py: `Snapshot.topics`) changed, the
script asks for this block alone and puts it there. A single number is `{{ ui.figure("wanted", figures) }}`
(snapshot.py: `Snapshot.figures`). A table is ordered and paged by links: `listing` (listing.py) and `ui.th`;
on a phone its row is two lines, the cell of class `lead` beside its name and those of class `two` below.
Macros are in `ui.html`, filters in rendering.py. Never mark a text as safe: all output is escaped, and its
control characters are made visible.

To add an action: a row in the table of calls with a function and the words of its `button`, and in the
template `{{ ui.act(form, "jobs pause", {"job": job.id}) }}`, which brings the double-submit token and the
equal command, and is absent where the server is read-only. It leads back to the page on which it stands.
"""
