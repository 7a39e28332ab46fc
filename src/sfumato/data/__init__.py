"""What devices hold: data sets, where they are read from, and how they are divided.

The schedule, simulation and protocols may import this package; it imports no torch.

    dataset            a data set
    features           features in memory, or taken when they are used
    mapped             rows of mapped arrays
    row_groups         rows of tables that are read group by group
    datasets           data sets by name, folder, Hub id or factory: the table of readers
    locate             where a source is to be read from, and what is read of it
    forms              the form of a file or folder, by its name or its contents
    builtin_datasets   sizes and scaling of the built-in sets
    synthetic          data made on the spot
    idx                IDX files
    cifar              the binary files of CIFAR-10 and CIFAR-100
    leaf               LEAF's JSON files
    tff                HDF5 files of TensorFlow Federated
    users              rows of files that say what each user has
    hub                data sets of the Hugging Face Hub, and saved folders
    csv_files          CSV files: separators, decimals
    csv_faults         what is wrong with a file that cannot be read as CSV
    table_files        Parquet and Arrow files, and data frames, column by column
    own_rows           rows of a user's own file, folder or object, whatever its form
    tables             the rows of tables
    arrays             .npz files, folders of .npy files, and tuples of arrays
    image_folder       a sub-folder of images for every class
    given              data given in Python
    rows               rows and targets as these readers give them, and the checks that all share
    splits             which rows are trained on and which are tested on
    persons            rows of one person: at one site, and either to train on or to test on
    repeats            columns called like identifiers, and those whose values stand in several rows
    sites              the sites that the data name, matched to the topology's
    dataset_sizes      how many examples there are, of which labels, counted without loading them
    partition          who holds which rows
    split_counts       how many rows everybody gets
    flwr_partitioners  partitioners of flwr-datasets
    zones              devices regrouped into zones
"""
