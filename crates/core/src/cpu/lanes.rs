//! Vectors of a few floats, with the few operations that the update kernels need.
//!
//! `f32` itself is one lane: it serves machines without a vector path, and the ragged ends of those with one. Lanes never
//! mix, so any width gives the same bits.

use crate::grid::Grid;
use half::{bf16, f16};

/// `WIDTH` floats that are loaded, multiplied-added and stored together.
///
/// # Safety
/// Implementations may need CPU features: every method may be called only where those are enabled. Pointers must be valid
/// for `WIDTH` elements; no alignment is needed.
#[allow(clippy::missing_safety_doc)] // one contract for the whole trait, above
pub(crate) unsafe trait Lanes: Copy {
    const WIDTH: usize;
    /// The dither words of `WIDTH` neighbouring coordinates.
    type Words: Copy;
    /// The words `first`, `first + stride`, …
    unsafe fn words(first: u32, stride: u32) -> Self::Words;
    /// Adds the same number to all words.
    unsafe fn add_words(words: Self::Words, number: u32) -> Self::Words;
    /// [`Grid::add`] in every lane: the gradient `self` with the noise `z`.
    unsafe fn add_on_grid(self, grid: Grid, z: Self, words: Self::Words) -> Self;
    unsafe fn splat(value: f32) -> Self;
    unsafe fn zero() -> Self;
    /// Fused multiply-add: `self · factor + term`, rounded once.
    unsafe fn fma(self, factor: Self, term: Self) -> Self;
    unsafe fn load_f32(from: *const f32) -> Self;
    unsafe fn store_f32(self, to: *mut f32);
    unsafe fn load_bf16(from: *const bf16) -> Self;
    unsafe fn store_bf16(self, to: *mut bf16);
    unsafe fn load_f16(from: *const f16) -> Self;
    unsafe fn store_f16(self, to: *mut f16);
}

// SAFETY: plain Rust needs no CPU feature; pointers are used as the trait's contract says.
#[allow(clippy::undocumented_unsafe_blocks)] // each block is the one access that the trait's contract covers
unsafe impl Lanes for f32 {
    const WIDTH: usize = 1;
    type Words = u32;
    #[inline(always)]
    unsafe fn words(first: u32, _: u32) -> u32 {
        first
    }
    #[inline(always)]
    unsafe fn add_words(words: u32, number: u32) -> u32 {
        words.wrapping_add(number)
    }
    #[inline(always)]
    unsafe fn add_on_grid(self, grid: Grid, z: f32, word: u32) -> f32 {
        grid.add(self, z, word)
    }
    #[inline(always)]
    unsafe fn splat(value: f32) -> f32 {
        value
    }
    #[inline(always)]
    unsafe fn zero() -> f32 {
        0.0
    }
    #[inline(always)]
    unsafe fn fma(self, factor: f32, term: f32) -> f32 {
        self.mul_add(factor, term)
    }
    #[inline(always)]
    unsafe fn load_f32(from: *const f32) -> f32 {
        unsafe { *from }
    }
    #[inline(always)]
    unsafe fn store_f32(self, to: *mut f32) {
        unsafe { *to = self }
    }
    #[inline(always)]
    unsafe fn load_bf16(from: *const bf16) -> f32 {
        unsafe { (*from).to_f32() }
    }
    #[inline(always)]
    unsafe fn store_bf16(self, to: *mut bf16) {
        unsafe { *to = bf16::from_f32(self) }
    }
    #[inline(always)]
    unsafe fn load_f16(from: *const f16) -> f32 {
        unsafe { (*from).to_f32() }
    }
    #[inline(always)]
    unsafe fn store_f16(self, to: *mut f16) {
        unsafe { *to = f16::from_f32(self) }
    }
}

/// A type that gradients are kept in.
///
/// # Safety
/// The contract is that of [`Lanes`], for pointers and for CPU features.
pub(crate) trait Stored: Copy + Send + Sync {
    unsafe fn load<V: Lanes>(from: *const Self) -> V;
    unsafe fn store<V: Lanes>(values: V, to: *mut Self);
}

macro_rules! stored {
    ($type:ty, $load:ident, $store:ident) => {
        #[allow(clippy::undocumented_unsafe_blocks)] // passes the trait's contract on
        impl Stored for $type {
            #[inline(always)]
            unsafe fn load<V: Lanes>(from: *const Self) -> V {
                unsafe { V::$load(from) }
            }
            #[inline(always)]
            unsafe fn store<V: Lanes>(values: V, to: *mut Self) {
                unsafe { values.$store(to) }
            }
        }
    };
}
stored!(f32, load_f32, store_f32);
stored!(bf16, load_bf16, store_bf16);
stored!(f16, load_f16, store_f16);
