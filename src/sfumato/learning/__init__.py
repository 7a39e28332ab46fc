"""Models and their training, without a word about networks, privacy or rounds.

Mechanisms, engines, protocols and attacks may import this package.

    architectures       the built-in models
    models              models by name, and what a model must be like
    parameters          a model's parameters as one flat vector
    partial_training    training a head, or low-rank adapters
    batches             which examples every mini-batch holds
    examples            the examples of a data set, in memory or taken for a few devices at a time
    gradients           the interface of stacked gradients, the choice among them, and that by ``torch.func``
    sequential          hand-written gradients for chains of simple layers
    dual_form           a linear first layer's weights as sums over the examples that a device uses
    captured_step       gradient steps as CUDA graphs
    tape                recorded operations over memory that is used again
    layers              the layers of such chains
    convolution         convolutions of such chains, as products of patches with kernels
    grouped_convolution the same on a CPU, devices being groups of one convolution
    patches             sizes of a convolution, and the patches of its input
    example_clip        clipping every example's gradient in such chains
    rounding_margin     how far below its norm a gradient is clipped, for rounding
    autograd_gradient   the gradient of one model after another, for any module
    given_model         a model given in Python
    dropout             dropout layers whose masks follow from the run's seed
    local_training      local steps of a stack of devices, by SGD or Adam
    training_memory     the memory of such a stack, and the steps laid out over it
    norms               norms of stacked vectors, and scaling them to a bound
    server_optimizer    what a server does with the averaged update
    losses              losses of an example, by name
    stacked_outputs     what several models predict for the same examples
    evaluation          accuracy, loss and further metrics on a test set
"""
