"""What a slug looks like."""

import unittest

from slugs import slug


class SlugTest(unittest.TestCase):
    """Each rule once."""

    def test_words_are_joined(self):
        """A space becomes a dash."""
        self.assertEqual(slug("Plain Words"), "plain-words")

    def test_one_dash_is_enough(self):
        """What stands between two words is one dash, however long it is."""
        self.assertEqual(slug("Signs & Wonders"), "signs-wonders")

    def test_no_dash_at_the_ends(self):
        """What stands around the title is nothing."""
        self.assertEqual(slug("  Really? "), "really")


if __name__ == "__main__":
    unittest.main()
