//! The steps of a captured graph, in device memory: records, their coefficients or terms, and the counter.

use crate::device::device_error;
use crate::launch::{Args, StepRecord};
use crate::memory::Memory;
use corrnoise_core::{Error, Result};
use cudarc::driver::CudaStream;
use std::sync::Arc;

/// Steps on their way to the device, then there.
#[derive(Default)]
pub(crate) struct Schedule {
    records: Vec<StepRecord>,
    words: Vec<u32>,
    /// Where the last step's words begin: a step with the same ones shares them.
    last: usize,
    key: [u32; 8],
    loaded: Option<Loaded>,
}

struct Loaded {
    records: Memory<u8>,
    words: Memory<u32>,
    counter: Memory<u64>,
    count: u64,
}

impl Schedule {
    /// Adds a step whose list is `words`, `unit` words per entry.
    pub(crate) fn push(
        &mut self,
        mut record: StepRecord,
        words: &[u32],
        unit: usize,
        key: [u32; 8],
    ) -> Result<()> {
        if self.words[self.last..] != *words {
            self.last = self.words.len();
            self.words.extend_from_slice(words);
        }
        record.list = u32::try_from(self.last / unit).map_err(|_| {
            Error::length(
                "schedule of a captured graph",
                self.records.len(),
                "fewer steps: their lists are too long",
            )
        })?;
        self.records.push(record);
        self.key = key;
        Ok(())
    }

    /// How many steps there are so far.
    pub(crate) fn len(&self) -> u64 {
        self.records.len() as u64
    }

    pub(crate) fn start(&mut self, stream: &Arc<CudaStream>) -> Result<()> {
        // Device memory of no length has no address.
        self.words.resize(self.words.len().max(1), 0);
        let spare = [StepRecord::default()];
        let records = if self.records.is_empty() { &spare } else { self.records.as_slice() };
        let count = self.len();
        self.loaded = Some(Loaded {
            records: Memory::copy(stream, bytemuck::cast_slice(records))?,
            words: Memory::copy(stream, &self.words)?,
            counter: Memory::zeros(stream, 1)?,
            count,
        });
        // The copies read host memory that goes away.
        stream.synchronize().map_err(device_error("wait for the stream"))
    }

    /// Points a launch to the schedule; gives the counter's address.
    pub(crate) fn fill(&self, args: &mut Args) -> Result<u64> {
        let Some(loaded) = &self.loaded else {
            return Err(Error::Device("no schedule is on the device".into()));
        };
        args.schedule = loaded.records.address;
        args.list = loaded.words.address;
        args.counter = loaded.counter.address;
        args.num_scheduled = loaded.count;
        args.key = self.key;
        Ok(args.counter)
    }

    /// Waits, drops everything, and says how many steps were run.
    pub(crate) fn stop(&mut self, stream: &Arc<CudaStream>) -> Result<u64> {
        let old = std::mem::take(self);
        let Some(loaded) = old.loaded else { return Ok(0) };
        let counter =
            stream.clone_dtoh(&loaded.counter.slice).map_err(device_error("read the step counter"))?;
        stream.synchronize().map_err(device_error("wait for the stream"))?;
        Ok(counter[0])
    }
}
