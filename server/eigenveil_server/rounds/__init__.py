"""One round of a study: the question that is open, the answers to it, and the step from its release to the
next question. Imports what follows from a release and storage; knows of no study but the round's."""
