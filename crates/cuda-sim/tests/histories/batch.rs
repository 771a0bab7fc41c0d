//! One gradient per segment, on the device and as the CPU engine leaves it.

use corrnoise::any::AnyGradients;
use corrnoise::{Dtype, Element, Mechanism, Result, Shard, with_element};
use corrnoise_cuda::DeviceGradient;
use corrnoise_testkit::gradients::gradient;
use cudarc::driver::{CudaSlice, CudaStream, DevicePtr};
use std::sync::Arc;

use crate::Random;

pub struct Batch {
    pub what: String,
    stream: Arc<CudaStream>,
    device: Vec<CudaSlice<u8>>,
    /// The bytes before a gradient, which make it unaligned; as many are behind it.
    offset: usize,
    pub dtype: Dtype,
    expected: Vec<Vec<u8>>,
    /// True for gradients that must be NaN.
    pub is_nan: bool,
}

/// The bytes of values.
fn bytes_of<E: Element>(values: &mut [E]) -> &mut [u8] {
    // SAFETY: numbers have no padding, and any bytes are one.
    unsafe { std::slice::from_raw_parts_mut(values.as_mut_ptr().cast(), size_of_val(values)) }
}

/// The values of bytes that are as many as [`bytes_of`] gave.
fn values_of<E: Element>(bytes: &[u8]) -> Vec<E> {
    let mut values = vec![E::from_f32(0.0); bytes.len() / size_of::<E>()];
    bytes_of(&mut values).copy_from_slice(bytes);
    values
}

const GUARD: u8 = 0x3c;

impl Batch {
    pub fn new(shard: &Shard, stream: &Arc<CudaStream>, random: &mut Random, what: String) -> Batch {
        let dtype = random.pick(&[Dtype::F32, Dtype::F32, Dtype::Bf16, Dtype::F16]);
        let offset = random.pick(&[0, 0, 1, 2, 4, 5]) * dtype.bytes();
        let len = |segment: &std::ops::Range<u64>| segment.end - segment.start;
        let expected: Vec<Vec<u8>> = with_element!(dtype, E => shard
            .segments()
            .iter()
            .map(|segment| bytes_of(&mut gradient::<E>(len(segment), E::from_f32)).to_vec())
            .collect());
        let guarded = |bytes: &Vec<u8>| {
            let mut whole = vec![GUARD; offset + 16];
            whole.splice(offset..offset, bytes.iter().copied());
            stream.clone_htod(&whole).unwrap()
        };
        let device = expected.iter().map(guarded).collect();
        Batch { what, stream: stream.clone(), device, offset, dtype, expected, is_nan: false }
    }

    /// The gradients at their addresses.
    pub fn list(&self) -> Vec<DeviceGradient<'static>> {
        let one = |(slice, bytes): (&CudaSlice<u8>, &Vec<u8>)| {
            let address = slice.device_ptr(&self.stream).0 + self.offset as u64;
            let len = bytes.len() / self.dtype.bytes();
            // SAFETY: the memory is kept until it was compared.
            unsafe { DeviceGradient::from_raw(address, len as u64, self.dtype) }
        };
        self.device.iter().zip(&self.expected).map(one).collect()
    }

    /// The next step of the CPU engine, on what is expected.
    pub fn expect_step(&mut self, cpu: &mut Mechanism) {
        with_element!(self.dtype, E => {
            let mut values: Vec<Vec<E>> = self.expected.iter().map(|bytes| values_of(bytes)).collect();
            cpu.add_to_all(&mut values.iter_mut().map(Vec::as_mut_slice).collect::<Vec<_>>()).unwrap();
            self.expected = values.iter_mut().map(|values| bytes_of(values).to_vec()).collect();
        })
    }

    /// Does a step on copies in host memory and compares them with what is expected after the step of the CPU engine, if it succeeds.
    pub fn on_host(
        mut self,
        cpu: &mut Mechanism,
        step: impl FnOnce(AnyGradients<'_, '_>) -> Result<()>,
    ) -> Result<()> {
        with_element!(self.dtype, E => {
            let mut values: Vec<Vec<E>> = self.expected.iter().map(|bytes| values_of(bytes)).collect();
            let mut slices: Vec<&mut [E]> = values.iter_mut().map(Vec::as_mut_slice).collect();
            step(AnyGradients::Host(corrnoise::Gradients::new(&mut slices)))?;
            self.expect_step(cpu);
            for (values, expected) in values.iter_mut().zip(&self.expected) {
                assert!(*bytes_of(values) == expected[..], "{}: host memory differs", self.what);
            }
            Ok(())
        })
    }

    /// Waits for the stream and compares.
    pub fn compare(self) {
        for (i, (slice, expected)) in self.device.iter().zip(&self.expected).enumerate() {
            let whole = self.stream.clone_dtoh(slice).unwrap();
            let got = &whole[self.offset..self.offset + expected.len()];
            let around = whole[..self.offset].iter().chain(&whole[self.offset + expected.len()..]);
            assert!(
                around.copied().all(|byte| byte == GUARD),
                "{}, segment {i}: written beyond it",
                self.what
            );
            let (mut same, mut at) = (true, 0);
            with_element!(self.dtype, E => {
                let (got, expected) = (values_of::<E>(got), values_of::<E>(expected));
                let equal = |(a, b): (&E, &E)| match self.is_nan {
                    true => a.to_f32().is_nan(),
                    false => a.to_bits() == b.to_bits(),
                };
                if let Some(place) = got.iter().zip(&expected).position(|pair| !equal(pair)) {
                    (same, at) = (false, place);
                }
            });
            assert!(
                same,
                "{}, {}, segment {i}, coordinate {at}, NaN: {}",
                self.what, self.dtype, self.is_nan
            );
        }
    }
}
