//! Gradients in host memory, as a backend takes them: slices whose number type is a value, so that one type serves all.

use crate::dtype::{Dtype, Element};
use crate::error::Result;
use crate::layout::Shard;
use crate::raw::check_lengths;
use crate::with_element;
use std::marker::PhantomData;
use std::ptr::NonNull;

/// Gradients in host memory: a list (`'list`) of one slice of memory (`'memory`) per segment of the shard, all of one number type.
pub struct Gradients<'list, 'memory> {
    dtype: Dtype,
    /// The first of `count` values `&'memory mut [E]`, where `E` is the element of `dtype`.
    list: NonNull<()>,
    count: usize,
    borrowed: PhantomData<&'list mut &'memory mut ()>,
}

impl<'list, 'memory> Gradients<'list, 'memory> {
    /// Slices whose number type becomes a value.
    pub fn new<E: Element>(slices: &'list mut [&'memory mut [E]]) -> Gradients<'list, 'memory> {
        let count = slices.len();
        let list = NonNull::from(slices).cast();
        Gradients { dtype: E::DTYPE, list, count, borrowed: PhantomData }
    }

    /// The number type of the slices.
    pub fn dtype(&self) -> Dtype {
        self.dtype
    }

    /// The slices, if `E` is their number type.
    pub fn slices<E: Element>(self) -> Option<&'list mut [&'memory mut [E]]> {
        // SAFETY: `new` made the list of such a slice, borrowed it for `'list`, and `self` is the borrow. Only one type has this tag.
        (E::DTYPE == self.dtype)
            .then(|| unsafe { std::slice::from_raw_parts_mut(self.list.cast().as_ptr(), self.count) })
    }

    /// The slices to look at, if `E` is their number type.
    fn view<E: Element>(&self) -> Option<&[&'memory mut [E]]> {
        // SAFETY: as in `slices`; nothing is written while this is borrowed.
        (E::DTYPE == self.dtype)
            .then(|| unsafe { std::slice::from_raw_parts(self.list.cast().as_ptr(), self.count) })
    }

    /// Refuses slices that do not fit the shard.
    pub fn check(&self, shard: &Shard) -> Result<()> {
        with_element!(self.dtype, E => {
            let slices = self.view::<E>().unwrap_or_default();
            check_lengths(shard, slices.iter().map(|slice| slice.len() as u64))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use half::f16;

    #[test]
    fn slices_come_back_as_the_type_that_they_were() {
        let (mut first, mut second) = ([f16::ONE; 3], [f16::ZERO; 2]);
        let mut list = [&mut first[..], &mut second[..]];
        let shard = crate::Layout::new([("a", 3), ("b", 2)]).unwrap().whole();
        let gradients = Gradients::new(&mut list);
        assert_eq!(gradients.dtype(), Dtype::F16);
        gradients.check(&shard).unwrap();
        let slices = gradients.slices::<f16>().unwrap();
        slices[1][0] = f16::ONE;
        assert!(Gradients::new(&mut list).slices::<f32>().is_none());
        assert_eq!(second, [f16::ONE, f16::ZERO]);
        let mut short = [&mut first[..]];
        let error = Gradients::new(&mut short).check(&shard).unwrap_err().to_string();
        assert!(error.contains("list of gradients has length 1"), "{error}");
    }
}
