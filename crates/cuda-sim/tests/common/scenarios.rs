//! Runs of every engine that has an order of streams to keep: their phases, and what each must give.

use corrnoise::{CpuOptions, Dtype, Form, Key, Mechanism, Plan, Result, Shard};
use corrnoise_cuda::{Cuda, CudaOptions, DeviceGradient, HostMade, HostMadeOptions, MadeOnHost, OnCuda};
use corrnoise_testkit::cases::{inverse_square_root_coefs, square_root_coefs};
use cudarc::driver::sys::{self, CUgraphInstantiate_flags, CUstreamCaptureMode};
use cudarc::driver::{CudaSlice, CudaStream, DevicePtrMut, result};
use std::sync::Arc;

pub const STEPS: u64 = 12;
/// Twelve tiles, more than a turn has rows: every step makes rows of some.
pub const LEN: usize = 12 * 512;
/// Five parts of a row that the host makes.
pub const HOST_LEN: usize = 5 * 16 * 512;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Prepared,
    Replayed,
    FirstReplayed,
    HostMade,
}

pub struct Scenario {
    pub name: &'static str,
    pub kind: Kind,
    pub form: Form,
}

pub fn scenarios() -> Vec<Scenario> {
    let forms = || {
        [
            ("blt", Form::blt(&[0.3, 0.1], &[0.9, 0.5]).unwrap()),
            ("ring", Form::banded_toeplitz(&square_root_coefs(6)).unwrap()),
            ("sum", Form::regenerate(&inverse_square_root_coefs(5)).unwrap()),
        ]
    };
    let of = |kind| move |(name, form)| Scenario { name, kind, form };
    let mut list: Vec<Scenario> = forms().into_iter().map(of(Kind::Prepared)).collect();
    list.extend(forms().into_iter().map(of(Kind::Replayed)));
    list.extend(forms().into_iter().map(of(Kind::FirstReplayed)));
    list.push(Scenario { name: "host", kind: Kind::HostMade, form: forms()[0].1.clone() });
    list
}

pub fn key() -> Key {
    Key::from_bytes([3; 32], "scenarios")
}

impl Scenario {
    pub fn len(&self) -> usize {
        if self.kind == Kind::HostMade { HOST_LEN } else { LEN }
    }

    pub fn plan(&self) -> Plan {
        Plan::new(STEPS, self.form.clone(), 0.75).unwrap()
    }

    pub fn shard(&self) -> Shard {
        Shard::whole(self.len() as u64).unwrap()
    }

    /// The noise of every step, as the CPU engine makes it.
    pub fn expected(&self) -> Vec<Vec<f32>> {
        let mut cpu = Mechanism::cpu(&self.plan(), key(), self.shard()).unwrap();
        let step = |_| {
            let mut gradient = vec![0.0; self.len()];
            cpu.add_to(&mut gradient).unwrap();
            gradient
        };
        (0..STEPS).map(step).collect()
    }

    pub fn cuda(&self, stream: &Arc<CudaStream>) -> Result<Mechanism<Cuda>> {
        let options = CudaOptions { rows_ahead: Some(4), prepare: true, ..CudaOptions::default() };
        Mechanism::cuda_with(&self.plan(), key(), self.shard(), stream, options)
    }

    pub fn host_made(&self, stream: &Arc<CudaStream>) -> Result<Mechanism<HostMade>> {
        let cpu = CpuOptions { threads: 1, ..CpuOptions::default() };
        let options = HostMadeOptions { cpu, chunk_bytes: 1, window: 2 };
        Mechanism::host_made(&self.plan(), key(), self.shard(), stream, options)
    }
}

/// A fresh context of a device, whatever became of the one before.
pub fn reset(device: usize) {
    result::init().unwrap();
    // SAFETY: the tests have dropped what they use of the context; what graphs keep is used no more.
    unsafe { sys::cuDevicePrimaryCtxReset_v2(device as i32).result() }.unwrap();
}

/// A stream of another framework: cudarc did not make it, and so records no events of its own.
pub fn borrowed(device: usize) -> Arc<CudaStream> {
    let default = corrnoise_cuda::stream(device).unwrap();
    default.context().bind_to_thread().unwrap();
    let stream = result::stream::create(result::stream::StreamKind::NonBlocking).unwrap();
    // SAFETY: a stream of this context that ends with it.
    unsafe { default.context().wrap_borrowed_stream(stream) }
}

/// One zeroed gradient per step, which is there before anything is counted.
pub fn gradients(stream: &Arc<CudaStream>, len: usize) -> Vec<CudaSlice<f32>> {
    (0..STEPS).map(|_| stream.alloc_zeros::<f32>(len).unwrap()).collect()
}

pub fn raw(gradient: &mut CudaSlice<f32>) -> DeviceGradient<'static> {
    let (stream, len) = (gradient.stream().clone(), gradient.len() as u64);
    let address = gradient.device_ptr_mut(&stream).0;
    // SAFETY: the tests keep their gradients until the end.
    unsafe { DeviceGradient::from_raw(address, len, Dtype::F32) }
}

pub fn begin(stream: &CudaStream) -> std::result::Result<(), cudarc::driver::DriverError> {
    stream.begin_capture(CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL)
}

pub fn end(
    stream: &Arc<CudaStream>,
) -> std::result::Result<Option<cudarc::driver::CudaGraph>, cudarc::driver::DriverError> {
    stream.end_capture(CUgraphInstantiate_flags(0))
}
