//! The number types of gradients: what they are called, how large they are, and which Rust type holds them.
//!
//! [`Dtype`] is the type as a value, for memory that comes from another language; [`Element`] is the same as a Rust type, for which the
//! kernels are compiled. [`with_element!`](crate::with_element) goes from the first to the second. A new number type is an arm in each of
//! the three, a load and a store in `cpu/lanes.rs` and `cpu/avx2.rs`, and a kernel in `kernels/gradient.cuh`; names in messages and loops over
//! all types follow from [`Dtype::ALL`]. `CONTRIBUTING.md` lists what else it takes.

use crate::cpu::Stored;
use crate::error::Error;
use std::fmt;
use std::str::FromStr;

#[doc(no_inline)]
pub use half::{bf16, f16};

/// The number type of a gradient, as a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Dtype {
    /// IEEE single precision, 4 bytes.
    F32 = 0,
    /// bfloat16, the upper half of a single.
    Bf16 = 1,
    /// IEEE half precision, 2 bytes.
    F16 = 2,
}

impl Dtype {
    /// Every number type, in the order of its tag.
    pub const ALL: [Dtype; 3] = [Dtype::F32, Dtype::Bf16, Dtype::F16];

    /// The number that stands for the type in C and in the table of kernels.
    pub const fn tag(self) -> u32 {
        self as u32
    }

    /// The type that a tag stands for, if there is one.
    pub fn from_tag(tag: u32) -> Option<Dtype> {
        Dtype::ALL.into_iter().find(|dtype| dtype.tag() == tag)
    }

    /// The bytes of one value.
    pub const fn bytes(self) -> usize {
        match self {
            Dtype::F32 => 4,
            Dtype::Bf16 | Dtype::F16 => 2,
        }
    }

    /// The type's name in Rust, in candle, in the kernels and in the files of vectors.
    pub const fn name(self) -> &'static str {
        match self {
            Dtype::F32 => "f32",
            Dtype::Bf16 => "bf16",
            Dtype::F16 => "f16",
        }
    }

    /// The type's name in NumPy, PyTorch and JAX.
    pub const fn python_name(self) -> &'static str {
        match self {
            Dtype::F32 => "float32",
            Dtype::Bf16 => "bfloat16",
            Dtype::F16 => "float16",
        }
    }

    /// The names of all types as a list in words, whose last two are joined by `word`: `f32, bf16 or f16`.
    pub fn names(word: &str) -> String {
        let [others @ .., last] = Dtype::ALL.map(Dtype::name);
        format!("{} {word} {last}", others.join(", "))
    }
}

impl fmt::Display for Dtype {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Dtype {
    type Err = Error;

    /// Reads either of the type's names.
    fn from_str(text: &str) -> Result<Dtype, Error> {
        let named = |dtype: &Dtype| [dtype.name(), dtype.python_name()].contains(&text);
        let refuse = || Error::parameter("number type", format!("{text:?}"), Dtype::names("or"));
        Dtype::ALL.into_iter().find(named).ok_or_else(refuse)
    }
}

/// A Rust type of gradients: one for each [`Dtype`].
#[allow(private_bounds)] // sealed: the kernels know these types and no others
pub trait Element: Stored + bytemuck::Pod + Default + PartialEq + fmt::Debug + 'static {
    /// The same type as a value.
    const DTYPE: Dtype;

    /// The nearest value of this type, ties to even.
    fn from_f32(value: f32) -> Self;

    /// The same value as an f32, which holds every value of every type.
    fn to_f32(self) -> f32;

    /// The value whose bits are the lowest ones of `bits`.
    fn from_bits(bits: u32) -> Self;

    /// The bits of the value, as the lowest bits of the result.
    fn to_bits(self) -> u32;

    /// True if one of the values left the type's range.
    #[doc(hidden)]
    fn any_overflow(_: &[Self]) -> bool {
        false
    }
}

impl Element for f32 {
    const DTYPE: Dtype = Dtype::F32;

    fn from_f32(value: f32) -> f32 {
        value
    }

    fn to_f32(self) -> f32 {
        self
    }

    fn from_bits(bits: u32) -> f32 {
        f32::from_bits(bits)
    }

    fn to_bits(self) -> u32 {
        f32::to_bits(self)
    }
}

impl Element for bf16 {
    const DTYPE: Dtype = Dtype::Bf16;

    fn from_f32(value: f32) -> bf16 {
        bf16::from_f32(value)
    }

    fn to_f32(self) -> f32 {
        bf16::to_f32(self)
    }

    fn from_bits(bits: u32) -> bf16 {
        bf16::from_bits(bits as u16)
    }

    fn to_bits(self) -> u32 {
        bf16::to_bits(self).into()
    }
}

impl Element for f16 {
    const DTYPE: Dtype = Dtype::F16;

    fn from_f32(value: f32) -> f16 {
        f16::from_f32(value)
    }

    fn to_f32(self) -> f32 {
        f16::to_f32(self)
    }

    fn from_bits(bits: u32) -> f16 {
        f16::from_bits(bits as u16)
    }

    fn to_bits(self) -> u32 {
        f16::to_bits(self).into()
    }

    /// There is no early exit, because a plain fold vectorises.
    fn any_overflow(values: &[f16]) -> bool {
        values.iter().fold(false, |any, value| any | (value.to_bits() & 0x7fff == 0x7c00))
    }
}

/// Evaluates an expression in which a name stands for the [`Element`] of a [`Dtype`]: the one place where a number type that is known at
/// run time selects compiled code.
///
/// ```
/// use corrnoise_core::{Dtype, with_element};
///
/// let bytes = |dtype: Dtype| with_element!(dtype, E => size_of::<E>());
/// assert_eq!(Dtype::ALL.map(bytes), [4, 2, 2]);
/// ```
#[macro_export]
macro_rules! with_element {
    ($dtype:expr, $element:ident => $body:expr) => {
        match $dtype {
            $crate::Dtype::F32 => {
                type $element = f32;
                $body
            }
            $crate::Dtype::Bf16 => {
                type $element = $crate::dtype::bf16;
                $body
            }
            $crate::Dtype::F16 => {
                type $element = $crate::dtype::f16;
                $body
            }
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_names_sizes_and_types_belong_together() {
        for (tag, dtype) in Dtype::ALL.into_iter().enumerate() {
            assert_eq!((dtype.tag() as usize, Dtype::from_tag(dtype.tag())), (tag, Some(dtype)));
            assert_eq!(dtype.to_string().parse::<Dtype>().unwrap(), dtype);
            assert_eq!(dtype.python_name().parse::<Dtype>().unwrap(), dtype);
            with_element!(dtype, E => {
                assert_eq!((E::DTYPE, size_of::<E>()), (dtype, dtype.bytes()));
                assert_eq!(E::from_bits(E::from_f32(-1.5).to_bits()), E::from_f32(-1.5));
                assert_eq!(E::from_f32(-1.5).to_f32(), -1.5);
            });
        }
        assert_eq!(Dtype::from_tag(3), None);
        let error = "f64".parse::<Dtype>().unwrap_err().to_string();
        assert_eq!(error, "number type is \"f64\": expected f32, bf16 or f16");
    }
}
