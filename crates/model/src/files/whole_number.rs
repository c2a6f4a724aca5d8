//! A whole number of a header, whatever type it is stored as.

use candle_core::quantized::gguf_file::Value;

/// A value of any integer type as a whole number; `None` for other values. candle's conversions build an error for each
/// type that does not match, tens of thousands for the token types of a vocabulary.
pub(crate) fn whole(value: &Value) -> Option<u64> {
    match *value {
        Value::I8(number) => u64::try_from(number).ok(),
        Value::I16(number) => u64::try_from(number).ok(),
        Value::I32(number) => u64::try_from(number).ok(),
        Value::I64(number) => u64::try_from(number).ok(),
        _ => value.to_u64().ok(),
    }
}
