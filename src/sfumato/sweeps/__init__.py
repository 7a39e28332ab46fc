"""A grid of specs, accounted or run, in processes side by side; resumable.

``grid`` says which points there are, ``crew`` keeps processes busy, ``worker`` is what they do, ``results``
is what became of it, ``play`` puts them together.
"""
