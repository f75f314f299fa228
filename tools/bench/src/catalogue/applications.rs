//! Instruments that do what applications do: kernels, master and workers, files.

use super::*;

/// Kernels, in the order of `bench/nas/nas.c`.
const KERNELS: &[&str] = &["EP", "IS", "CG", "MG", "FT", "LU", "BT", "SP"];
const CLASSES: &[&str] = &["S", "W", "A", "B"];

pub static NAS: Description = Description {
    name: "nas",
    about: "Kernels of the NAS Parallel Benchmarks",
    details: "Times are those that the specification defines, of one run. Results are compared with those of the specification, and wrong ones end the measurement. \
              CG, MG, FT and LU run on powers of two of ranks, BT and SP on square numbers. The kernels in Fortran need gfortran.",
    program: "nas",
    title: "NAS Parallel Benchmarks",
    time: "time of the kernel",
    sizes: Some(Numbers {
        option: "kernel",
        help: "Kernels",
        default: "EP,IS,CG,MG,FT,LU,BT,SP",
        quick: "EP,IS,CG,MG,FT,LU,BT,SP",
        least: 0,
        most: KERNELS.len() as u64 - 1,
        words: KERNELS,
    }),
    counts: Some(Numbers {
        option: "class",
        help: "Classes of problems, from the least on",
        default: "A",
        quick: "S",
        least: 0,
        most: CLASSES.len() as u64 - 1,
        words: CLASSES,
    }),
    ranks: Some(Numbers { default: "4", quick: "4", least: 1, most: 32, ..RANKS }),
    statistics: &[Statistic::Least],
    panels: &[Column::Ranks, Column::Word("class", CLASSES)],
    axis: &[Column::Operation],
    shape: Shape::Bars,
    // The time limit of a run follows from the bytes.
    moved_bytes: |case| (16 << 20) << (3 * case.count),
    ..PLAIN
};

pub static RAY2MESH: Description = Description {
    name: "ray2mesh",
    about: "Seismic rays traced by workers for a master, and a mesh that all merge (ray2mesh)",
    details: "Times are µs. The master hands out sets of 1000 rays (69 kB) to workers that ask; there are 100 sets for each second of --seconds. \
              Then each rank gets its part of the mesh from all others. The numbers of rays per rank are in the JSON file.",
    program: "ray2mesh",
    title: "ray2mesh: rays traced for a master, and a merged mesh",
    time: "time",
    sizes: Some(Numbers {
        help: "Sizes of the mesh in bytes",
        default: "16M",
        quick: "1M",
        least: 1 << 10,
        ..SIZES
    }),
    counts: Some(Numbers {
        option: "masters",
        help: "Ranks that are the master, one after the other",
        default: "0",
        quick: "0",
        least: 0,
        most: 1023,
        ..SIZES
    }),
    ranks: Some(Numbers { default: "4", quick: "4", ..RANKS }),
    operations: |_| 3,
    statistics: &[Statistic::Least],
    panels: &[Column::Ranks, Column::Bytes("mesh")],
    axis: &[Column::Operation, Column::Count("master")],
    shape: Shape::Bars,
    ..PLAIN
};

pub static SIMRI: Description = Description {
    name: "simri",
    about: "An image by magnetic resonance, simulated by workers for a master (Simri)",
    details: "Times are µs. Tasks are few and long, and their results short: each is a line of the signal, of as many samples as there are lines. \
              All spins of the object contribute to each. The numbers of lines per rank are in the JSON file.",
    program: "simri",
    title: "Simri: lines of a signal simulated for a master",
    sizes: Some(Numbers {
        help: "Bytes of a result, 16 for each line of the image",
        default: "1k",
        quick: "256",
        least: 16,
        most: 4 << 10,
        ..SIZES
    }),
    has_case: |case| case.bytes.is_multiple_of(16),
    operations: |_| 1,
    panels: &[Column::Ranks, Column::Bytes("result")],
    ..RAY2MESH
};

/// Place of a file that the first half of the ranks sees.
const ONE_SIDE: u64 = 2;

pub static IO: Description = Description {
    name: "io",
    about: "Files by all ranks, beside pwrite and pread by as many processes",
    details: "Times are µs until all ranks have ended, with the speed as a part of that of pwrite and pread. Parts are contiguous, or interleaved in blocks of 1 KiB, of 16 bytes, or of rows of a cube, in a collective call. The non-blocking ones run beside as much computing, of which a part is hidden, beside that of a thread that calls pwrite or pread. Files are in /dev/shm, and in the folder for the programs; none is synchronized. Of files on one side, the limit is the time of the link for the data of the other side; the file takes that of pwrite besides.",
    program: "io",
    title: "Files: an access of all ranks",
    time: "until all ranks have ended",
    sizes: Some(Numbers {
        help: "Bytes of each rank, multiples of 1024",
        default: "16M",
        quick: "1M",
        least: 64 << 10,
        most: 1 << 30,
        ..SIZES
    }),
    counts: Some(Numbers {
        option: "files",
        help: "Place of the file: 0 is /dev/shm, 1 the folder of the programs, 2 that folder, which the first half of the ranks sees",
        default: "0,1",
        quick: "0,1",
        least: 0,
        most: ONE_SIDE,
        ..SIZES
    }),
    has_case: |case| case.bytes.is_multiple_of(1024),
    ranks: Some(Numbers { default: "4", quick: "4", most: 16, ..RANKS }),
    operations: |case| if case.count == ONE_SIDE { 8 } else { 20 },
    statistics: &[Statistic::Median, Statistic::Least],
    panels: &[Column::Operation, Column::Statistic],
    axis: &[
        Column::Bytes("size"),
        Column::Ranks,
        Column::Word("file", &["/dev/shm", "folder", "one side"]),
    ],
    least_us: Some(|link, operation, case| match case.count {
        ONE_SIDE if operation.contains("_all") => {
            link.limit_us(u64::from(case.ranks / 2) * case.bytes)
        }
        _ => 0.0,
    }),
    shape: Shape::Bars,
    figure: Some(Quantity::Share(Share {
        head: "of plain",
        label: "speed, as a part of that of pwrite or pread",
        is_clamped: false,
        beside: Some(("hidden", "hidden")),
    })),
    // Peers write blocks of 16 bytes one by one.
    moved_bytes: |case| case.bytes * 20,
    is_drawn: |_, statistic| statistic == Statistic::Median,
    ..PLAIN
};
