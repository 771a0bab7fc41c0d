//! A step on host memory: pointers and lengths become slices once everything about them was checked.

use crate::argument::{borrow, list};
use crate::mechanism::{Engine, MechanismHandle, Running};
use crate::status::{Failure, Outcome, Status, entry};
use corrnoise::{Element, Error, Mechanism, Shard};
use half::{bf16, f16};

/// Memory that calls reuse, so that a step allocates nothing. The lists are empty between calls.
#[derive(Default)]
pub(crate) struct Scratch {
    pub(crate) spans: Vec<(usize, usize)>,
    f32: Vec<&'static mut [f32]>,
    bf16: Vec<&'static mut [bf16]>,
    f16: Vec<&'static mut [f16]>,
    #[cfg(feature = "cuda")]
    pub(crate) device: Vec<corrnoise::cuda::DeviceGradient<'static>>,
}

/// A type of gradient, and the list that is kept for it.
trait Host: Element + Sized + 'static {
    fn kept(scratch: &mut Scratch) -> &mut Vec<&'static mut [Self]>;
}

impl Host for f32 {
    fn kept(scratch: &mut Scratch) -> &mut Vec<&'static mut [f32]> {
        &mut scratch.f32
    }
}
impl Host for bf16 {
    fn kept(scratch: &mut Scratch) -> &mut Vec<&'static mut [bf16]> {
        &mut scratch.bf16
    }
}
impl Host for f16 {
    fn kept(scratch: &mut Scratch) -> &mut Vec<&'static mut [f16]> {
        &mut scratch.f16
    }
}

/// Adds the noise of the next step to f32 gradients: one per segment of the shard, `lengths[i]` values from `gradients[i]` on.
/// They must not overlap. Returns when all is added.
///
/// CORRNOISE_STATUS_DEVICE and CORRNOISE_STATUS_INTERNAL mean that gradients may be half-way, and poison the mechanism.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn corrnoise_add_to_f32(
    mechanism: *const MechanismHandle,
    gradients: *const *mut f32,
    lengths: *const usize,
    count: usize,
) -> Status {
    // SAFETY: the crate's contract.
    entry(|| unsafe { add_to::<f32>(mechanism, gradients, lengths, count) })
}

/// The same for bfloat16, rounded to nearest even.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn corrnoise_add_to_bf16(
    mechanism: *const MechanismHandle,
    gradients: *const *mut u16,
    lengths: *const usize,
    count: usize,
) -> Status {
    // SAFETY: the crate's contract; `bf16` is a transparent `u16`, and so are pointers to it.
    entry(|| unsafe { add_to::<bf16>(mechanism, gradients.cast(), lengths, count) })
}

/// The same for IEEE half precision, rounded to nearest even. If a value leaves the range of f16, the step is complete all the
/// same and the status is CORRNOISE_STATUS_OVERFLOW.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn corrnoise_add_to_f16(
    mechanism: *const MechanismHandle,
    gradients: *const *mut u16,
    lengths: *const usize,
    count: usize,
) -> Status {
    // SAFETY: the crate's contract; `f16` is a transparent `u16`, and so are pointers to it.
    entry(|| unsafe { add_to::<f16>(mechanism, gradients.cast(), lengths, count) })
}

/// # Safety
/// The crate's contract.
unsafe fn add_to<E: Host>(
    mechanism: *const MechanismHandle,
    gradients: *const *mut E,
    lengths: *const usize,
    count: usize,
) -> Outcome {
    // SAFETY: the caller's promise, passed on.
    let mechanism = unsafe { borrow(mechanism, "mechanism") }?;
    // SAFETY: the caller's promise, passed on.
    let (gradients, lengths) =
        unsafe { (list(gradients, count, "gradients")?, list(lengths, count, "lengths")?) };
    let Running { engine, scratch } = &mut *mechanism.lock()?;
    let mechanism = on_host(engine)?;
    check_lengths(mechanism.shard(), lengths.iter().map(|len| *len as u64))?;
    check_addresses(
        &mut scratch.spans,
        gradients.iter().zip(lengths).map(|(pointer, len)| (pointer.addr(), *len)),
        size_of::<E>(),
    )?;
    let mut slices: Vec<&mut [E]> = std::mem::take(E::kept(scratch));
    // SAFETY: each has the segment's length, is neither null nor misaligned, wraps around no end of memory and overlaps no
    // other; by the caller's promise it is initialised memory that nobody else uses during this call, and the list is emptied
    // before the call ends. (If the step panics the list is dropped, which drops references only.)
    slices.extend(
        gradients
            .iter()
            .zip(lengths)
            .map(|(pointer, len)| unsafe { std::slice::from_raw_parts_mut(*pointer, *len) }),
    );
    let outcome = mechanism.add_to_all(&mut slices);
    slices.clear();
    // An empty list has references of every lifetime; collecting it in place keeps its memory.
    *E::kept(scratch) = slices.into_iter().map(|_| unreachable!("the list is empty")).collect();
    Ok(outcome?)
}

fn on_host(engine: &mut Engine) -> Outcome<&mut Mechanism> {
    match engine {
        Engine::Cpu(mechanism) => Ok(mechanism),
        #[cfg(feature = "cuda")]
        Engine::Cuda(_) => {
            let expected = "device addresses in corrnoise_cuda_add_to(): this mechanism is on a device";
            Err(Error::parameter("gradients", "in host memory", expected).into())
        }
    }
}

/// Refuses lists that do not fit the shard, before a slice of a wrong length is made.
pub(crate) fn check_lengths(shard: &Shard, lengths: impl ExactSizeIterator<Item = u64>) -> Outcome {
    let segments = shard.segments();
    if lengths.len() != segments.len() {
        let expected = format!("{}, one per segment", segments.len());
        return Err(Error::length("list of gradients", lengths.len(), expected).into());
    }
    for (i, (len, segment)) in lengths.zip(segments).enumerate() {
        let expected = segment.end - segment.start;
        if len != expected {
            let expected = format!("{expected}, the shard's coordinates {segment:?}");
            let (name, got) = (format!("gradient {i}"), len);
            return Err(Error::Length { name, got, expected }.into());
        }
    }
    Ok(())
}

/// Refuses null, misaligned and overlapping gradients: `(address, length)` each.
pub(crate) fn check_addresses(
    spans: &mut Vec<(usize, usize)>,
    gradients: impl Iterator<Item = (usize, usize)>,
    value_bytes: usize,
) -> Outcome {
    spans.clear();
    for (i, (address, len)) in gradients.enumerate() {
        let refuse = |expected: String| {
            Err(Error::parameter(format!("address of gradient {i}"), format!("{address:#x}"), expected)
                .into())
        };
        if address == 0 {
            return Err(Failure::Null("a gradient"));
        }
        if address % value_bytes != 0 {
            return refuse(format!("a multiple of {value_bytes}"));
        }
        let bytes = len.checked_mul(value_bytes).filter(|bytes| *bytes <= isize::MAX as usize);
        match bytes.and_then(|bytes| address.checked_add(bytes)) {
            Some(end) => spans.push((address, end)),
            None => return refuse(format!("room for {len} values behind it")),
        }
    }
    spans.sort_unstable();
    match spans.windows(2).find(|pair| pair[0].1 > pair[1].0) {
        Some(pair) => {
            let found = format!("{:#x}..{:#x} and {:#x}..{:#x}", pair[0].0, pair[0].1, pair[1].0, pair[1].1);
            Err(Error::parameter("addresses of gradients", found, "memory that does not overlap").into())
        }
        None => Ok(()),
    }
}
