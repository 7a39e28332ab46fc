"""What devices hold: data sets, where they are read from, and how they are divided.

The schedule, simulation and protocols may import this package; it imports no torch.

    dataset            a data set in memory
    datasets           data sets by name, folder, Hub id or factory: the table of readers
    locate             where a source is to be read from
    builtin_datasets   sizes and scaling of the built-in sets
    synthetic          data made on the spot
    idx                IDX files
    hub                data sets of the Hugging Face Hub, and saved folders
    own_data           a user's own files, folders and Python objects, opened
    tables             CSV, Parquet and data frames
    arrays             .npz files and tuples of arrays
    image_folder       a sub-folder of images for every class
    given              data given in Python
    columns            which columns hold what, and what is learnt
    targets            what is learnt where it is no class
    rows               rows as these readers give them, and the checks that all share
    splits             which rows are trained on and which are tested on
    sites              the sites that the data name, matched to the topology's
    dataset_sizes      how many examples there are, counted without loading them
    label_counts       how many examples of each label a worker holds
    partition_rule     the rule by which rows are divided
    partition          who holds which rows
    split_counts       how many rows everybody gets
    flwr_partitioners  partitioners of flwr-datasets
    zones              devices regrouped into zones
"""
