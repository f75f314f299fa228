//! Steps of one rank.

/// Memory of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Buffer {
    /// The caller's input. Schedules that work in place do not use it.
    Input,
    /// The caller's output.
    Output,
    /// A temporary of the library.
    Temporary(u32),
}

/// A range of a buffer, in units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// The buffer.
    pub buffer: Buffer,
    /// Its first unit.
    pub start: u64,
    /// Number of units.
    pub len: u64,
}

/// One step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Starts a send.
    Send {
        /// Receiving rank.
        to: u32,
        /// Units to send.
        span: Span,
    },
    /// Starts a receive.
    Receive {
        /// Sending rank.
        from: u32,
        /// Units to receive into.
        span: Span,
    },
    /// Waits for everything started.
    Wait,
    /// Waits for the operation that one step started.
    Await {
        /// Index of that step in the schedule.
        step: u32,
    },
    /// Copies.
    Copy {
        /// Source.
        from: Span,
        /// Destination, of the same length.
        to: Span,
    },
    /// Begins a round at the shared segment and posts data. Its page is free once all ranks have
    /// begun the round after the page's last use.
    Post {
        /// Units to post.
        span: Span,
    },
    /// Posts some of the schedule's blocks, one behind the other, as `Post` does.
    PostParts {
        /// Index of the first block.
        first: u32,
        /// Number of blocks.
        count: u32,
    },
    /// Posts the schedule's blocks behind a list of their ends, as `Post` does.
    PostBlocks,
    /// Announces the total length of the next post and of all further pieces in the same round.
    Announce {
        /// Total in units, more than a page.
        units: u64,
        /// Rank that takes the pieces.
        reader: u32,
    },
    /// Posts a further announced piece, when the last but one has been taken.
    PostMore {
        /// Index of the piece; the first after the initial post is 1.
        piece: u32,
        /// Units to post: a page, or the rest.
        span: Span,
    },
    /// Waits until ranks have posted in this round. Ranks are named by their positions in the
    /// shared segment of their node; on one node these are the ranks.
    Meet {
        /// First position.
        first: u32,
        /// End of the positions, exclusive.
        end: u32,
    },
    /// Copies data posted in this round.
    Take {
        /// Posting rank, which was met or is this one.
        from: u32,
        /// First unit of its post.
        at: u64,
        /// Destination, of the length to copy.
        to: Span,
    },
    /// Copies this rank's block out of the blocks posted in this round.
    TakeBlock {
        /// Posting rank, which was met.
        from: u32,
        /// Destination of the whole block.
        to: Span,
    },
    /// Waits for a further piece and copies it.
    TakeMore {
        /// Posting rank, which was met.
        from: u32,
        /// Index of the piece; the first after the initial post is 1.
        piece: u32,
        /// Destination of the whole piece.
        to: Span,
    },
    /// Allows the posting ranks of this round to overwrite pieces.
    Release {
        /// Last piece released.
        piece: u32,
    },
    /// Combines data posted in this round by ranks that were met, in the schedule's order.
    Combine {
        /// This rank's own operand, if the order contains it.
        own: Span,
        /// First unit of the posts.
        at: u64,
        /// Destination, of the length to combine.
        to: Span,
        /// True if all ranks compute the same and share cores, so that they run one after the
        /// other. The first then gives the others its result.
        for_all: bool,
    },
    /// `inout = input op inout`.
    Reduce {
        /// Left operand.
        input: Span,
        /// Right operand and result.
        inout: Span,
    },
}

/// Steps of one rank.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Schedule {
    /// Steps in order.
    pub steps: Vec<Step>,
    /// Lengths of the temporaries, in units.
    pub temporaries: Vec<u64>,
    /// Blocks to post for each rank, in the order of ranks: at once, or part by part.
    pub blocks: Vec<Span>,
    /// Order in which posted operands are combined.
    pub order: Vec<Fold>,
}

/// One operation in combining operands, on a stack of combinations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fold {
    /// Pushes this operand as a new combination.
    Begin(Operand),
    /// Puts this operand to the left of the last combination.
    Put(Operand),
    /// Puts the last combination to the left of the one before it.
    Join,
}

/// An operand in a shared segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operand {
    /// This rank's operand, in place.
    Own,
    /// Data that this rank has posted.
    Posted(u32),
}

impl Schedule {
    /// Prepends a copy of the output's `len` units to the input. A schedule that reads the input
    /// then serves a call in place.
    #[must_use]
    pub fn in_place(mut self, len: u64) -> Self {
        let (from, to) = (Buffer::Output.span(0, len), Buffer::Input.span(0, len));
        if len > 0 {
            self.steps.insert(0, Step::Copy { from, to });
            for step in &mut self.steps {
                match step {
                    Step::Await { step } => *step += 1,
                    Step::Send { .. } | Step::Receive { .. } | Step::Wait => {}
                    Step::Copy { .. } | Step::Reduce { .. } => {}
                    Step::Post { .. } | Step::PostParts { .. } | Step::PostBlocks => {}
                    Step::Announce { .. } | Step::PostMore { .. } => {}
                    Step::Meet { .. } | Step::Release { .. } => {}
                    Step::Take { .. } | Step::TakeBlock { .. } | Step::TakeMore { .. } => {}
                    Step::Combine { .. } => {}
                }
            }
        }
        self
    }

    pub(crate) fn temporary(&mut self, len: u64) -> Buffer {
        self.temporaries.push(len);
        Buffer::Temporary(self.temporaries.len() as u32 - 1)
    }

    /// Allocates a temporary and returns it as one span. Operands of one reduction lie in different
    /// buffers, since elements of a datatype may lie between each other's parts.
    pub(crate) fn room(&mut self, len: u64) -> Span {
        self.temporary(len).span(0, len)
    }

    pub(crate) fn send(&mut self, to: u32, span: Span) {
        if span.len > 0 {
            self.steps.push(Step::Send { to, span });
        }
    }

    pub(crate) fn receive(&mut self, from: u32, span: Span) {
        self.expect(from, span);
    }

    /// Starts a receive that can be awaited by itself.
    pub(crate) fn expect(&mut self, from: u32, span: Span) -> Ticket {
        if span.len == 0 {
            return Ticket::default();
        }
        self.steps.push(Step::Receive { from, span });
        Ticket(Some(self.steps.len() as u32 - 1))
    }

    /// Waits for one receive.
    pub(crate) fn settle(&mut self, ticket: Ticket) {
        if let Some(step) = ticket.0 {
            self.steps.push(Step::Await { step });
        }
    }

    /// [`Schedule::send`], also of an empty span.
    pub(crate) fn send_even_empty(&mut self, to: u32, span: Span) {
        self.steps.push(Step::Send { to, span });
    }

    /// [`Schedule::receive`], also of an empty span.
    pub(crate) fn receive_even_empty(&mut self, from: u32, span: Span) {
        self.steps.push(Step::Receive { from, span });
    }

    /// Sends a message without data.
    pub(crate) fn send_signal(&mut self, to: u32) {
        self.steps.push(Step::Send { to, span: Buffer::Output.span(0, 0) });
    }

    pub(crate) fn receive_signal(&mut self, from: u32) {
        self.steps.push(Step::Receive { from, span: Buffer::Output.span(0, 0) });
    }

    pub(crate) fn wait(&mut self) {
        if !matches!(self.steps.last(), None | Some(Step::Wait)) {
            self.steps.push(Step::Wait);
        }
    }

    pub(crate) fn copy(&mut self, from: Span, to: Span) {
        if from.len > 0 {
            self.steps.push(Step::Copy { from, to });
        }
    }

    /// Puts `left op right` into `right`.
    pub(crate) fn reduce(&mut self, left: Span, right: Span) {
        if left.len > 0 {
            self.steps.push(Step::Reduce { input: left, inout: right });
        }
    }
}

/// A started receive; none if there was nothing to receive.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Ticket(Option<u32>);

impl Span {
    /// Returns a part of it that begins `start` units further.
    #[must_use]
    pub fn part(self, start: u64, len: u64) -> Self {
        Self { start: self.start + start, len, ..self }
    }
}

impl Buffer {
    pub(crate) fn span(self, start: u64, len: u64) -> Span {
        Span { buffer: self, start, len }
    }
}

/// Returns the start of each block of a buffer, and the end.
pub(crate) fn starts(sizes: impl Iterator<Item = u64>) -> Vec<u64> {
    let mut starts = vec![0];
    let mut sum = 0;
    for size in sizes {
        sum += size;
        starts.push(sum);
    }
    starts
}

/// Splits `len` units into `parts` nearly equal parts and returns the start and length of part
/// `index`.
pub(crate) fn part(len: u64, parts: u32, index: u32) -> (u64, u64) {
    let (parts, index) = (u64::from(parts), u64::from(index));
    let at = |index: u64| (u128::from(len) * u128::from(index) / u128::from(parts)) as u64;
    (at(index), at(index + 1) - at(index))
}
