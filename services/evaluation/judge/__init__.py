"""Whether answers are right, as another model finds: asked only where somebody wants it.

Of all the project it is the one part that sends text of a data set elsewhere: question, given
answer and what was said, to the endpoint that was named and to no other.
"""
