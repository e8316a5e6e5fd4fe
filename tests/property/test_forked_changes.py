"""What a child changed since its fork: neither more nor less than the way from one tree to the other."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from remit.workspaces._changes import Change, Changes, Content, sort_changes
from remit.workspaces._forking import changes_since

Tree = dict[str, Content]

TREES = st.dictionaries(
    st.sampled_from(["a", "b", "c", "d", "e"]),
    st.builds(
        Content,
        mode=st.sampled_from(["100644", "100755"]),
        sha256=st.sampled_from(["1", "2"]),
        size=st.just(1),
    ),
)


def between(start: Tree, end: Tree) -> Changes:
    """All that differs."""
    paths = {path for path in {*start, *end} if start.get(path) != end.get(path)}
    changes = [Change(path=path, base=start.get(path), result=end.get(path)) for path in paths]
    return Changes(changes=sort_changes(changes))


@given(base=TREES, parent=TREES, child=TREES)
def test_it_is_what_differs_between_the_two(base: Tree, parent: Tree, child: Tree) -> None:
    """Told against one base, the difference of two trees is exactly what leads from one to the other."""
    assert changes_since(between(base, child), between(base, parent)) == between(parent, child)
