"""What a person sees of a host in a browser: its runs, live, and one run whole.

Pages are made here, whole, from templates; the little script only fetches them anew when something has
happened. Whatever a model, a tool or a repository wrote is text on them, never markup (R49).
"""

from remit.api.dashboard._dashboard import Dashboard, takes_form

__all__ = ["Dashboard", "takes_form"]
