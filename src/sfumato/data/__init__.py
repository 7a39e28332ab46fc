"""What devices hold: data sets, where they are read from, and how they are divided.

The schedule, simulation and protocols may import this package; it imports no torch.

    datasets           data sets by name, folder, Hub id or factory: the table of readers
    locate             where a source is to be read from
    builtin_datasets   sizes and scaling of the built-in sets
    synthetic          data made on the spot
    idx                IDX files
    hub                data sets of the Hugging Face Hub, and saved folders
    dataset_sizes      how many examples there are, counted without loading them
    label_counts       how many examples of each label a worker holds
    partition          who holds which rows
    split_counts       how many rows everybody gets
    flwr_partitioners  partitioners of flwr-datasets
    zones              devices regrouped into zones
"""
