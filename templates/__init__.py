"""Flex Templates: launch forms, image and launch files; see README.md."""
