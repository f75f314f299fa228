//! Files read and written through views, against a file kept byte by byte.

use datatype::{Builtin, Datatype};
use io::{FaultKind, OpenFile, OpenMode, View, delete, read_pattern, write_pattern};
use memory::Region;
use proptest::prelude::*;

const BOTH: OpenMode = OpenMode { reads: true, writes: true, creates: true, is_exclusive: false };

fn view(displacement: i64, block: i64, stride: i64) -> View {
    let byte = Datatype::builtin(Builtin::Byte);
    let made = Datatype::contiguous(block, &byte).unwrap().resized(0, stride).unwrap();
    View::new(displacement, &byte, &made, true).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn data_go_where_the_view_says(
        displacement in 0..50i64, block in 1..3000i64, gap in 0..6000i64, stream in 0..9000u64, len in 0..20000usize,
    ) {
        let place = tempfile::tempdir().unwrap();
        let file = OpenFile::open(&place.path().join("file"), BOTH).unwrap();
        let view = view(displacement, block, block + gap);
        let data: Vec<u8> = (0..len).map(|at| (at * 7 + at / 251) as u8).collect();
        write_pattern(&file, view.pattern(), stream, &Region::from_box(data.clone().into())).unwrap();
        let offset = |at: u64| view.byte_offset(at).unwrap() as usize;
        let size = if len == 0 { 0 } else { offset(stream + len as u64 - 1) + 1 };
        let mut model = vec![0; size];
        for (at, byte) in data.iter().enumerate() {
            model[offset(stream + at as u64)] = *byte;
        }
        prop_assert_eq!(std::fs::read(place.path().join("file")).unwrap(), model);
        // One byte beyond the end: as much is read as there is.
        let into = Region::owned(len + 1);
        prop_assert_eq!(read_pattern(&file, view.pattern(), stream, &into).unwrap(), len);
        prop_assert_eq!(&into.to_vec()[..len], &data[..]);
    }
}

#[test]
fn scattered_memory_is_written_and_read_in_its_order() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("file");
    let file = OpenFile::open(&path, BOTH).unwrap();
    for (block, count) in [(8, 5000), (700, 3000)] {
        let memory = Region::owned(2 * block * count);
        let parts = || (0..count).rev().map(|at| memory.slice(2 * block * at, block));
        (0..memory.len()).for_each(|at| memory.write(at, &[(at % 253) as u8]));
        let scattered = Region::chain(parts());
        file.write(3, &scattered, 0, scattered.len()).unwrap();
        assert_eq!(std::fs::read(&path).unwrap()[3..], scattered.to_vec());
        let expected = scattered.to_vec();
        scattered.write(0, &vec![0; scattered.len()]);
        assert_eq!(file.read(3, &scattered, 0, scattered.len()).unwrap(), scattered.len());
        assert_eq!(scattered.to_vec(), expected);
        file.set_size(0).unwrap();
    }
}

#[test]
fn failures_say_of_which_kind_they_are() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("file");
    let kind =
        |path: &std::path::Path, mode| OpenFile::open(path, mode).map(drop).unwrap_err().kind;
    let only_read = OpenMode { writes: false, creates: false, ..BOTH };
    assert_eq!(kind(&path, only_read), FaultKind::NoSuchFile);
    assert_eq!(kind(place.path(), only_read), FaultKind::BadFile);
    let file = OpenFile::open(&path, BOTH).unwrap();
    assert_eq!(kind(&path, OpenMode { is_exclusive: true, ..BOTH }), FaultKind::FileExists);
    assert_eq!(kind(&path.join("below"), BOTH), FaultKind::BadFile);
    assert_eq!(kind(&place.path().join("x".repeat(300)), BOTH), FaultKind::BadFile);
    file.reserve(5000).unwrap();
    assert_eq!(file.size().unwrap(), 5000);
    file.reserve(100).unwrap();
    assert_eq!(file.size().unwrap(), 5000);
    file.sync().unwrap();
    let reader = OpenFile::open(&path, only_read).unwrap();
    let fault = reader.write(7, &Region::owned(1), 0, 1).unwrap_err();
    assert_eq!((fault.kind, fault.offset), (FaultKind::Io, Some(7)));
    delete(&path).unwrap();
    assert_eq!(delete(&path).unwrap_err().kind, FaultKind::NoSuchFile);
}
