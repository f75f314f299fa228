//! Macros for test rails that wrap another rail.

/// Implements methods of `Rail` by calls of the same methods of the rail in a field.
macro_rules! passes_on {
    ($rail:ident: $($method:ident),*) => {
        $(passed_on!($rail $method);)*
    };
}

macro_rules! passed_on {
    ($rail:ident name) => {
        fn name(&self) -> &'static str {
            self.$rail.name()
        }
    };
    ($rail:ident address) => {
        fn address(&self) -> Vec<u8> {
            self.$rail.address()
        }
    };
    ($rail:ident connect) => {
        fn connect(&mut self, peer: PeerId, address: &[u8]) -> Result<(), rail::RailError> {
            self.$rail.connect(peer, address)
        }
    };
    ($rail:ident disconnect) => {
        fn disconnect(&mut self, peer: PeerId) {
            self.$rail.disconnect(peer);
        }
    };
    ($rail:ident post) => {
        fn post(&mut self, peer: PeerId, frame: &wire::Frame) -> rail::Post {
            self.$rail.post(peer, frame)
        }
    };
    ($rail:ident poll) => {
        fn poll(&mut self, sink: &mut dyn FnMut(rail::Event<'_>)) -> bool {
            self.$rail.poll(sink)
        }
    };
    ($rail:ident remote_reader) => {
        fn remote_reader(&self, peer: PeerId) -> Option<std::sync::Arc<dyn rail::RemoteReader>> {
            self.$rail.remote_reader(peer)
        }
    };
    ($rail:ident coalesce_within) => {
        fn coalesce_within(&self) -> Duration {
            self.$rail.coalesce_within()
        }
    };
    ($rail:ident neighbours) => {
        fn neighbours(&mut self) -> Option<&mut dyn rail::Neighbours> {
            self.$rail.neighbours()
        }
    };
    ($rail:ident descriptors) => {
        fn descriptors(&self) -> Vec<std::os::fd::BorrowedFd<'_>> {
            self.$rail.descriptors()
        }
    };
    ($rail:ident prepare_sleep) => {
        fn prepare_sleep(&mut self) -> bool {
            self.$rail.prepare_sleep()
        }
    };
    ($rail:ident finish_sleep) => {
        fn finish_sleep(&mut self) {
            self.$rail.finish_sleep();
        }
    };
    ($rail:ident is_flushed) => {
        fn is_flushed(&self) -> bool {
            self.$rail.is_flushed()
        }
    };
}
