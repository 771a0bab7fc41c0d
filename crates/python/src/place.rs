//! The device of a mechanism and the options to use it with, as keywords of Python name them.

use crate::error::{invalid, raise};
use corrnoise::{CpuOptions, Device, Place};
use pyo3::PyResult;

/// The options of the engines on all devices, none of which changes the noise.
pub(crate) struct Options {
    pub(crate) threads: usize,
    pub(crate) compact: bool,
    pub(crate) prepare_threads: usize,
    pub(crate) rows_ahead: Option<usize>,
    pub(crate) prepare_stream: bool,
    pub(crate) max_state_bytes: Option<u64>,
}

/// The place that the arguments name: `device` is "cpu", "scalar", "cuda" or "cuda:N"; `stream` is the address of a CUDA stream, 0 for
/// the default one.
pub(crate) fn place(device: &str, stream: usize, options: &Options) -> PyResult<Place> {
    let device: Device = device.parse().map_err(raise)?;
    let Options { threads, compact, prepare_threads, .. } = *options;
    options.check(device)?;
    let cpu = CpuOptions { threads, compact, prepare_threads, ..CpuOptions::default() };
    // SAFETY: the caller's promise, in the text of `Mechanism`: a stream of the device's primary context, which is the one
    // that PyTorch and the runtime use, that outlives the mechanism.
    let place = unsafe { Place::on_stream(device, cpu, std::ptr::with_exposed_provenance_mut(stream)) };
    let place = place.map_err(raise)?;
    #[cfg(feature = "cuda")]
    let place = place.with_cuda_options(options.cuda());
    Ok(place)
}

impl Options {
    /// Refuses options that the device does not have, or that contradict each other.
    fn check(&self, device: Device) -> PyResult<()> {
        let is_cuda = matches!(device, Device::Cuda(_));
        let refuse = |name: &str, value: String, usual: &str| {
            Err(invalid(format!(
                "{name} is {value}: expected {usual} on {device}, it is an option of CUDA devices"
            )))
        };
        match self {
            Options { rows_ahead: Some(rows), .. } if !is_cuda => {
                refuse("rows_ahead", rows.to_string(), "None")
            }
            Options { prepare_stream: true, .. } if !is_cuda => {
                refuse("prepare_stream", "True".into(), "False")
            }
            Options { max_state_bytes: Some(bytes), .. } if !is_cuda => {
                refuse("max_state_bytes", bytes.to_string(), "None")
            }
            Options { compact: true, rows_ahead: Some(rows), .. } if *rows != 1 => {
                Err(invalid(format!("rows_ahead is {rows}: expected None or 1 with compact=True")))
            }
            _ => Ok(()),
        }
    }

    /// The options of the CUDA engine; compact state has no rows ahead.
    #[cfg(feature = "cuda")]
    fn cuda(&self) -> corrnoise::cuda::CudaOptions {
        corrnoise::cuda::CudaOptions {
            rows_ahead: if self.compact { Some(1) } else { self.rows_ahead },
            prepare: self.prepare_stream,
            max_state_bytes: self.max_state_bytes,
        }
    }
}
