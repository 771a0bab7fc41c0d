//! Gradients from other languages: addresses and lengths become slices once everything that can be checked was checked.

use crate::backend::Backend;
use crate::dtype::Element;
use crate::error::{Error, Result};
use crate::layout::Shard;
use crate::mechanism::Mechanism;

/// Memory that steps on foreign memory reuse, so that a step allocates nothing.
#[derive(Default)]
pub struct RawGradients {
    spans: Vec<(usize, usize)>,
    /// The memory of a list of slices of any element type; the list is empty between steps.
    kept: Vec<&'static mut [()]>,
}

impl RawGradients {
    /// Does what [`Mechanism::add_to_all`] does, on a list of `(pointer, length)`. Refuses null, misaligned and overlapping memory.
    ///
    /// # Safety
    /// Memory of a length that the shard expects is initialised, and used by nobody else until this returns.
    pub unsafe fn add_to<E: Element>(
        &mut self,
        mechanism: &mut Mechanism,
        gradients: impl ExactSizeIterator<Item = (*mut E, usize)> + Clone,
    ) -> Result<()> {
        // SAFETY: the caller's promise, passed on.
        unsafe { self.with_slices(mechanism, gradients, |mechanism, slices| mechanism.add_to_all(slices)) }
    }

    /// Does what [`RawGradients::add_to`] does, for a mechanism on any backend: `step` receives the memory as slices.
    ///
    /// # Safety
    /// The contract is that of [`RawGradients::add_to`].
    pub unsafe fn with_slices<E: Element, B: Backend>(
        &mut self,
        mechanism: &mut Mechanism<B>,
        gradients: impl ExactSizeIterator<Item = (*mut E, usize)> + Clone,
        step: impl FnOnce(&mut Mechanism<B>, &mut [&mut [E]]) -> Result<()>,
    ) -> Result<()> {
        check_lengths(mechanism.shard(), gradients.clone().map(|(_, len)| len as u64))?;
        let spans = gradients.clone().map(|(pointer, len)| (pointer.addr(), len));
        self.check_addresses(spans, size_of::<E>())?;
        let mut slices: Vec<&mut [E]> = emptied(std::mem::take(&mut self.kept));
        // SAFETY: each has its segment's length, is neither null nor misaligned, ends before memory does and overlaps no other;
        // the rest is the caller's promise. The list is emptied before this returns; if the step panics it is dropped, and
        // with it nothing but references.
        slices
            .extend(gradients.map(|(pointer, len)| unsafe { std::slice::from_raw_parts_mut(pointer, len) }));
        let outcome = step(mechanism, &mut slices);
        self.kept = emptied(slices);
        outcome
    }

    /// Refuses null, misaligned and overlapping memory: `(address, length)` each, in values of `value_bytes`.
    pub fn check_addresses(
        &mut self,
        gradients: impl Iterator<Item = (usize, usize)>,
        value_bytes: usize,
    ) -> Result<()> {
        self.spans.clear();
        for (i, (address, len)) in gradients.enumerate() {
            let refuse = |expected: String| {
                Err(Error::parameter(format!("address of gradient {i}"), format!("{address:#x}"), expected))
            };
            if address == 0 || address % value_bytes != 0 {
                return refuse(format!("a multiple of {value_bytes}, not null"));
            }
            let bytes = len.checked_mul(value_bytes).filter(|bytes| *bytes <= isize::MAX as usize);
            match bytes.and_then(|bytes| address.checked_add(bytes)) {
                Some(end) => self.spans.push((address, end)),
                None => return refuse(format!("room for {len} values behind it")),
            }
        }
        self.spans.sort_unstable();
        match self.spans.windows(2).find(|pair| pair[0].1 > pair[1].0) {
            Some([one, two]) => {
                let found = format!("{:#x}..{:#x} and {:#x}..{:#x}", one.0, one.1, two.0, two.1);
                Err(Error::parameter("addresses of gradients", found, "memory that does not overlap"))
            }
            _ => Ok(()),
        }
    }
}

/// Reuses the memory of a list for a list of another type of the same size: collecting nothing in place keeps the allocation.
fn emptied<A, B>(mut list: Vec<A>) -> Vec<B> {
    list.clear();
    list.into_iter().map(|_| unreachable!("the list is empty")).collect()
}

/// Refuses lists that do not fit the shard: one length per segment.
pub fn check_lengths(shard: &Shard, lengths: impl ExactSizeIterator<Item = u64>) -> Result<()> {
    let segments = shard.segments();
    if lengths.len() != segments.len() {
        let expected = format!("{}, one per segment", segments.len());
        return Err(Error::length("list of gradients", lengths.len(), expected));
    }
    for (i, (got, segment)) in lengths.zip(segments).enumerate() {
        let expected = segment.end - segment.start;
        if got != expected {
            let name = if segments.len() == 1 { "gradient".into() } else { format!("gradient {i}") };
            let expected = format!("{expected}, the shard's coordinates {segment:?}");
            return Err(Error::Length { name, got, expected });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Form, Key, Layout, Plan};

    #[test]
    fn bad_memory_is_refused_and_changes_nothing() {
        let shard = Layout::new([("w", 700), ("b", 10)]).unwrap().whole();
        let plan = Plan::new(3, Form::independent(), 0.5).unwrap();
        let mut noise = Mechanism::cpu(&plan, Key::from_os().unwrap(), shard).unwrap();
        let mut raw = RawGradients::default();
        let mut values = vec![1.0_f32; 720];
        let start = values.as_mut_ptr();
        let end = std::ptr::without_provenance_mut(usize::MAX - 15);
        for (second, len, part) in [
            (start.wrapping_add(710), 9, "gradient 1 has length 9"),
            (start.wrapping_add(699), 10, "does not overlap"),
            (start.wrapping_byte_add(2801), 10, "a multiple of 4"),
            (std::ptr::null_mut(), 10, "not null"),
            (end, 10, "room for 10 values"),
        ] {
            // SAFETY: what would be accepted lies in `values`.
            let error = unsafe { raw.add_to(&mut noise, [(start, 700), (second, len)].into_iter()) };
            let error = error.unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        }
        assert_eq!((values == [1.0; 720], noise.next_step()), (true, 0));
        let start = values.as_mut_ptr();
        // SAFETY: both lie in `values`.
        unsafe { raw.add_to(&mut noise, [(start.add(10), 700), (start, 10)].into_iter()) }.unwrap();
        assert_eq!(values[710..], [1.0; 10]);
        // Now and then noise is less than half a unit of the output grid.
        let unchanged = values[..710].iter().filter(|value| **value == 1.0).count();
        assert!(unchanged < 10, "order in memory is free: {unchanged}");
    }
}
