//! A simulated device: its memory is the host's, and its copies end only when they are asked.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use crate::{Device, DeviceCopy, Region};

/// A device for tests. It reads and writes at the end of a copy, so that bytes which are used too early are seen to be
/// wrong. Copies may end in another order than they began.
#[derive(Debug)]
pub struct SimulatedDevice(Mutex<Copies>);

#[derive(Debug)]
struct Copies {
    begun: u64,
    under_way: BTreeMap<u64, Task>,
    /// Numbers of questions after which copies end, in turn.
    questions: Vec<u32>,
}

#[derive(Debug)]
struct Task {
    to: Region,
    from: Region,
    left: u32,
}

impl SimulatedDevice {
    /// Makes a device whose copies end after so many questions each, in turn.
    pub fn new(questions: Vec<u32>) -> Arc<Self> {
        Arc::new(Self(Mutex::new(Copies { begun: 0, under_way: BTreeMap::new(), questions })))
    }

    /// Number of copies that have begun.
    pub fn begun(&self) -> u64 {
        self.copies().begun
    }

    /// Number of copies that have not ended.
    pub fn under_way(&self) -> usize {
        self.copies().under_way.len()
    }

    fn copies(&self) -> std::sync::MutexGuard<'_, Copies> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Device for SimulatedDevice {
    fn begin(&self, to: Region, from: Region) -> DeviceCopy {
        let mut copies = self.copies();
        let number = copies.begun;
        copies.begun += 1;
        let turn = number as usize % copies.questions.len().max(1);
        let left = copies.questions.get(turn).copied().unwrap_or(0);
        copies.under_way.insert(number, Task { to, from, left });
        DeviceCopy(number)
    }

    fn is_done(&self, DeviceCopy(number): DeviceCopy) -> bool {
        let mut copies = self.copies();
        let Some(task) = copies.under_way.get_mut(&number) else { return true };
        if task.left > 0 {
            task.left -= 1;
            return false;
        }
        if let Some(Task { to, from, .. }) = copies.under_way.remove(&number) {
            to.copy_from(&from);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Copying, Layout, Segment, Space};

    fn numbered(len: usize) -> Region {
        Region::from_box((0..len).map(|at| at as u8 ^ (at >> 8) as u8).collect())
    }

    /// Memory of `len` bytes, three of each four, with the layout that names them.
    fn scattered(len: usize) -> (Region, Region) {
        let layout = Arc::new(Layout::new([Segment { offset: 0, len: 3 }], 4));
        let all = Region::owned(len.div_ceil(3) * 4);
        let elements = all.typed(0, len.div_ceil(3), &layout).map(|it| it.slice(0, len));
        (all, elements.unwrap_or_else(Region::empty))
    }

    #[test]
    fn copies_of_a_device_end_when_asked_and_those_of_the_host_at_once() {
        let device = SimulatedDevice::new(vec![2, 0]);
        let (host, there) = (numbered(100), Region::owned(100));
        let on_device = Region::on_device(there.clone(), device.clone());
        assert!(matches!(on_device.space(), Space::Device(_)) && on_device.as_span().is_none());
        assert!(matches!(host.space(), Space::Host));
        let mut copying = Copying::begin(&on_device, &host);
        assert!(!copying.is_done() && !copying.is_done());
        assert_eq!(there.to_vec(), [0; 100]);
        assert!(copying.is_done());
        assert_eq!(there.to_vec(), host.to_vec());
        let back = Region::owned(60);
        assert!(Copying::begin(&back, &on_device.slice(20, 60)).is_done());
        assert_eq!(back.to_vec(), host.to_vec()[20..80]);
        assert_eq!((device.begun(), device.under_way()), (2, 0));
        assert!(Copying::begin(&back, &host.slice(0, 60)).is_done());
        assert_eq!(device.begun(), 2, "the host needs no device");
    }

    #[test]
    fn devices_exchange_memory_by_way_of_the_host() {
        let [one, other] = [vec![1], vec![3]].map(SimulatedDevice::new);
        let (from, to) = (numbered(50), Region::owned(50));
        let source = Region::on_device(from.clone(), one);
        let target = Region::on_device(to.clone(), other.clone());
        let mut copying = Copying::begin(&target, &source);
        let questions = (0..10).take_while(|_| !copying.is_done()).count();
        assert_eq!((questions, to.to_vec()), (4, from.to_vec()));
        let twice = Region::on_device(Region::owned(50), other);
        Copying::begin(&twice, &target).wait();
        assert_eq!(twice.to_vec(), from.to_vec());
    }

    #[test]
    fn memory_of_a_device_is_read_and_written_as_that_of_the_host() {
        let device = SimulatedDevice::new(vec![0, 5, 1]);
        for (offset, len) in [(0, 90), (7, 50), (30, 0), (89, 1)] {
            let (_all, elements) = scattered(90);
            elements.copy_from(&numbered(90));
            let region = Region::on_device(elements.clone(), device.clone());
            let expected = numbered(90).to_vec();
            let mut read = vec![0; len];
            region.read(offset, &mut read);
            assert_eq!(read, expected[offset..][..len]);
            let mut appended = vec![1];
            region.slice(offset, len).append_to(&mut appended);
            assert_eq!(appended[1..], expected[offset..][..len]);
            region.write(offset, &vec![9; len]);
            assert_eq!(elements.to_vec()[offset..][..len], vec![9; len]);
            assert_eq!(elements.to_vec()[..offset], expected[..offset]);
            let (_all, others) = scattered(len);
            others.copy_from(&region.slice(offset, len));
            assert_eq!(others.to_vec(), vec![9; len]);
        }
        assert_eq!(device.under_way(), 0);
    }
}
