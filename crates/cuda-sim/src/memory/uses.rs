//! Which commands used which memory, so that commands of different streams that nothing orders are noticed.
//!
//! A chunk of 512 bytes remembers the last command that wrote it, and the commands that read it since, one per stream. A row of
//! one tile has four chunks of its own, so commands that use different rows never meet in one.

/// The bytes of a chunk, as a power of two; an aligned access of 16 bytes is inside one.
const SHIFT: u32 = 9;
const READ: u8 = 1;
const WRITE: u8 = 2;

/// A command that used memory: its place in the order of the streams, and its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Use {
    /// The stream, or the branch of a graph, that ran the command.
    pub stream: u64,
    /// The time of the command; later commands of a stream have later times.
    pub time: u64,
    /// The number of the command's name.
    pub name: u32,
}

#[derive(Clone, Default)]
struct Record {
    writer: Option<Use>,
    readers: Vec<Use>,
}

/// The chunks of one allocation.
pub(crate) struct Uses {
    /// What the current command did to each chunk.
    touched: Vec<u8>,
    /// Whether the current command touched any.
    any: bool,
    records: Vec<Record>,
}

/// Two uses of a chunk that nothing orders.
pub(crate) struct Unordered {
    pub at: usize,
    pub verb: &'static str,
    pub other: Use,
    pub other_verb: &'static str,
}

impl Uses {
    pub(super) fn new(len: usize) -> Self {
        let chunks = len.div_ceil(1 << SHIFT);
        Self { touched: vec![0; chunks], any: false, records: Vec::new() }
    }

    #[inline(always)]
    pub(super) fn read(&mut self, at: usize) {
        self.touched[at >> SHIFT] |= READ;
        self.any = true;
    }

    #[inline(always)]
    pub(super) fn write(&mut self, at: usize) {
        self.touched[at >> SHIFT] |= WRITE;
        self.any = true;
    }

    /// Says that the current command read or wrote a range, which is inside the allocation and not empty.
    pub(super) fn range(&mut self, at: usize, len: usize, writes: bool) {
        let flag = if writes { WRITE } else { READ };
        self.touched[at >> SHIFT..=(at + len - 1) >> SHIFT].iter_mut().for_each(|touched| *touched |= flag);
        self.any = true;
    }

    /// Ends the current command: `knows` tells which others come before it. Its touches are kept, or dropped without a name.
    pub(super) fn settle(
        &mut self,
        command: Option<Use>,
        knows: impl Fn(Use) -> bool,
    ) -> Result<(), Unordered> {
        if !std::mem::take(&mut self.any) {
            return Ok(());
        }
        let Some(command) = command else {
            self.touched.fill(0);
            return Ok(());
        };
        self.records.resize(self.touched.len(), Record::default());
        let mut outcome = Ok(());
        for (chunk, (touched, record)) in self.touched.iter_mut().zip(&mut self.records).enumerate() {
            let touched = std::mem::take(touched);
            if touched != 0 && outcome.is_ok() {
                outcome = record.add(touched, command, &knows).map_err(|(verb, other, other_verb)| {
                    Unordered { at: chunk << SHIFT, verb, other, other_verb }
                });
            }
        }
        outcome
    }
}

impl Record {
    fn add(
        &mut self,
        touched: u8,
        command: Use,
        knows: &impl Fn(Use) -> bool,
    ) -> Result<(), (&'static str, Use, &'static str)> {
        let writes = touched & WRITE != 0;
        let verb = if writes { "writes" } else { "reads" };
        let stranger = |other: &Use| other.stream != command.stream && !knows(*other);
        if let Some(writer) = self.writer.filter(stranger) {
            return Err((verb, writer, "wrote"));
        }
        if writes {
            if let Some(reader) = self.readers.iter().copied().find(stranger) {
                return Err((verb, reader, "read"));
            }
            self.readers.clear();
            self.writer = Some(command);
            return Ok(());
        }
        self.readers.retain(|reader| reader.stream != command.stream);
        self.readers.push(command);
        Ok(())
    }
}
