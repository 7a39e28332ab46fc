"""What a party does to a message before it sends it: clip, noise, compress.

Engines and protocols may import this package; it imports learning's arithmetic of norms.

    base               the interface of noise mechanisms
    registry           the mechanism that a spec asks for
    gaussian           Gaussian noise on real numbers
    threefry           words for that noise on a GPU, from a key and a counter
    step_noise         Gaussian noise on sums of gradients, at every local step
    discrete_gaussian  discrete Gaussian noise on integers
    clipping           bounds on the norm of a message, and the sensitivity that they give
    compression        which coordinates are sent, and in how many bits
"""
