//! The steps of a captured graph, in device memory: records, their coefficients or terms, and the counter.

use crate::device::device_error;
use crate::launch::{Args, StepRecord};
use corrnoise_core::{Error, Result};
use cudarc::driver::{CudaSlice, CudaStream, DevicePtr};
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
    records: CudaSlice<u8>,
    words: CudaSlice<u32>,
    counter: CudaSlice<u64>,
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
        let upload = || device_error("upload the schedule of a captured graph");
        // Device memory of no length has no address.
        self.words.resize(self.words.len().max(1), 0);
        let spare = [StepRecord::default()];
        let records = if self.records.is_empty() { &spare } else { self.records.as_slice() };
        let count = self.len();
        self.loaded = Some(Loaded {
            records: stream.clone_htod(bytemuck::cast_slice(records)).map_err(upload())?,
            words: stream.clone_htod(&self.words).map_err(upload())?,
            counter: stream.alloc_zeros(1).map_err(upload())?,
            count,
        });
        // The copies read host memory that goes away.
        stream.synchronize().map_err(upload())
    }

    /// Points a launch to the schedule; gives the counter's address.
    pub(crate) fn fill(&self, args: &mut Args, stream: &CudaStream) -> Result<u64> {
        let Some(loaded) = &self.loaded else {
            return Err(Error::Device("no schedule is on the device".into()));
        };
        args.schedule = loaded.records.device_ptr(stream).0;
        args.list = loaded.words.device_ptr(stream).0;
        args.counter = loaded.counter.device_ptr(stream).0;
        args.num_scheduled = loaded.count;
        args.key = self.key;
        Ok(args.counter)
    }

    /// Waits, drops everything, and says how many steps were run.
    pub(crate) fn stop(&mut self, stream: &Arc<CudaStream>) -> Result<u64> {
        let old = std::mem::take(self);
        let Some(loaded) = old.loaded else { return Ok(0) };
        let counter = stream.clone_dtoh(&loaded.counter).map_err(device_error("read the step counter"))?;
        stream.synchronize().map_err(device_error("wait for the stream"))?;
        Ok(counter[0])
    }
}
