//! The steps of one rank.

/// Memory that a step refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Buffer {
    /// What the caller hands in. Not used by schedules that work in place.
    Input,
    /// What the caller gets.
    Output,
    /// The library's own.
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
    /// Begin to send.
    Send {
        /// To this rank.
        to: u32,
        /// These units.
        span: Span,
    },
    /// Begin to receive.
    Receive {
        /// From this rank.
        from: u32,
        /// Into these units.
        span: Span,
    },
    /// Wait for everything begun.
    Wait,
    /// Wait for what was begun in a step.
    Await {
        /// The place of that step in the schedule.
        step: u32,
    },
    /// Copy.
    Copy {
        /// From here.
        from: Span,
        /// To here, as many units.
        to: Span,
    },
    /// Begin a round at the shmem, and post what others may need, if that has a place: some rounds before, all have
    /// begun the next one by then.
    Post {
        /// These units.
        span: Span,
    },
    /// As `Post`, of some of the schedule's blocks, one behind the other.
    PostParts {
        /// The first of them.
        first: u32,
        /// How many.
        count: u32,
    },
    /// As `Post`, of the schedule's blocks, behind a list of where each of them ends.
    PostBlocks,
    /// Say how many units what is posted next comes to with all that is posted after it in the same round.
    Announce {
        /// So many: more than a page.
        units: u64,
        /// The rank that takes them, piece by piece.
        reader: u32,
    },
    /// Post a further piece of what was announced, when the last but one has been taken.
    PostMore {
        /// The first that follows what was posted is 1.
        piece: u32,
        /// These units: a page, or what is left.
        span: Span,
    },
    /// Wait until ranks have posted in this round. Ranks are named by their positions at the shmem, which is that of
    /// their node: on one node, by their ranks.
    Meet {
        /// From this one on…
        first: u32,
        /// …to the one before this.
        end: u32,
    },
    /// Copy what was posted in this round.
    Take {
        /// By this rank, which was met or is this one.
        from: u32,
        /// From this unit of it on.
        at: u64,
        /// To here, as many units.
        to: Span,
    },
    /// Copy the block for this rank of those that were posted in this round.
    TakeBlock {
        /// By this rank, which was met.
        from: u32,
        /// To here: the whole block.
        to: Span,
    },
    /// Wait for a further piece, and copy it.
    TakeMore {
        /// By this rank, which was met.
        from: u32,
        /// The first that follows what it has posted is 1.
        piece: u32,
        /// To here: the whole piece.
        to: Span,
    },
    /// Let those who have posted pieces in this round write where they were.
    Release {
        /// All up to this one.
        piece: u32,
    },
    /// Combine what was posted in this round by ranks that were met, in the schedule's order.
    Combine {
        /// This rank's own operand, where the order has it.
        own: Span,
        /// From this unit of what was posted on.
        at: u64,
        /// To here, as many units.
        to: Span,
        /// They come to the same at all ranks, which come one after the other: who is first tells the others.
        for_all: bool,
    },
    /// `inout = input op inout`.
    Reduce {
        /// The left operand.
        input: Span,
        /// The right operand and the result.
        inout: Span,
    },
}

/// What one rank does.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Schedule {
    /// The steps, in order.
    pub steps: Vec<Step>,
    /// Lengths of the temporaries, in units.
    pub temporaries: Vec<u64>,
    /// What is posted for each rank, in the order of ranks: at once, or part by part.
    pub blocks: Vec<Span>,
    /// How posted operands are combined.
    pub order: Vec<Fold>,
}

/// What comes next where operands are combined, on a stack of combinations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fold {
    /// This operand begins a combination.
    Begin(Operand),
    /// This operand is put to the left of the last combination.
    Put(Operand),
    /// The last combination is put to the left of the one before it.
    Join,
}

/// An operand at a shmem.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operand {
    /// This rank's, where it is.
    Own,
    /// What this rank has posted.
    Posted(u32),
}

impl Schedule {
    /// The same after the output's `len` units have been copied to the input: what a plan that reads the
    /// input makes of a call in place.
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

    /// A temporary as one span. Operands of one reduction lie in different buffers: elements of a datatype
    /// may lie between each other's parts.
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

    /// A receive that can be awaited by itself.
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

    /// A message without data.
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

    /// Puts `left op right` where `right` is.
    pub(crate) fn reduce(&mut self, left: Span, right: Span) {
        if left.len > 0 {
            self.steps.push(Step::Reduce { input: left, inout: right });
        }
    }
}

/// What was begun, if anything was.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Ticket(Option<u32>);

impl Span {
    /// A part of it, which begins `start` units on.
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

/// Where each block of a buffer begins; one entry more than there are blocks.
pub(crate) fn starts(sizes: impl Iterator<Item = u64>) -> Vec<u64> {
    let mut starts = vec![0];
    let mut sum = 0;
    for size in sizes {
        sum += size;
        starts.push(sum);
    }
    starts
}

/// `len` units in `parts` nearly equal parts: part `index` as start and length.
pub(crate) fn part(len: u64, parts: u32, index: u32) -> (u64, u64) {
    let (parts, index) = (u64::from(parts), u64::from(index));
    let at = |index: u64| (u128::from(len) * u128::from(index) / u128::from(parts)) as u64;
    (at(index), at(index + 1) - at(index))
}
