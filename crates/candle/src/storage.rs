//! candle's storages, which are enums over its number types: the one place that says which of those the engine has, too.

/// Evaluates one expression for the values of a storage, whichever of the engine's number types they have, and another one for values
/// of any other type. `$kind` is candle's enum: that of the CPU and that of a CUDA device have the same variants.
macro_rules! with_values {
    ($storage:expr, $kind:ident, $values:ident => $body:expr, _ => $otherwise:expr) => {
        match $storage {
            $kind::F32($values) => $body,
            $kind::BF16($values) => $body,
            $kind::F16($values) => $body,
            _ => $otherwise,
        }
    };
}

pub(crate) use with_values;
