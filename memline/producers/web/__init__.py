"""The dashboard of `memline serve` at `/ui`: five server-rendered pages and a login, for `serve.token`.

A page is a function of `pages` that returns what its template in `templates/` shows; `PAGES` lists them. A
button is a form that does what a verb of `actions.verbs` does; `ACTIONS` in dashboard.py lists those
commands. All output is escaped and its control characters are made visible, so never mark a text as safe.
The script asks again every five seconds for a page that is looked at; everything works without it.
"""
