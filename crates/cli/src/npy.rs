//! The `.npy` format, version 1.0: a header in text, then the values; written row by row.

use std::io::{Result, Write};

/// Writes the header of a C-ordered matrix of little-endian f32.
pub fn write_header(out: &mut dyn Write, rows: u64, columns: u64) -> Result<()> {
    let mut header = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': ({rows}, {columns}), }}");
    // Magic, version and length are 10 bytes; the whole is a multiple of 64 and ends in a newline.
    let unpadded = 10 + header.len() + 1;
    header.extend(std::iter::repeat_n(' ', unpadded.next_multiple_of(64) - unpadded));
    header.push('\n');
    out.write_all(b"\x93NUMPY\x01\x00")?;
    out.write_all(&(header.len() as u16).to_le_bytes())?;
    out.write_all(header.as_bytes())
}

/// Writes one row of values.
pub fn write_row(out: &mut dyn Write, values: &[f32]) -> Result<()> {
    for part in values.chunks(4096) {
        let mut bytes = [0_u8; 4 * 4096];
        for (bytes, value) in bytes.chunks_exact_mut(4).zip(part) {
            bytes.copy_from_slice(&value.to_le_bytes());
        }
        out.write_all(&bytes[..4 * part.len()])?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_header_is_padded_and_names_the_shape() {
        let mut bytes = Vec::new();
        write_header(&mut bytes, 3, 1_000_000).unwrap();
        assert_eq!(bytes.len() % 64, 0);
        let text = String::from_utf8_lossy(&bytes[10..]);
        assert!(
            text.starts_with("{'descr': '<f4', 'fortran_order': False, 'shape': (3, 1000000), }"),
            "{text}"
        );
        assert!(text.ends_with('\n'));
        assert_eq!(usize::from(u16::from_le_bytes([bytes[8], bytes[9]])), bytes.len() - 10);
        bytes.clear();
        write_row(&mut bytes, &[1.0, -0.0]).unwrap();
        assert_eq!(bytes, [0, 0, 0x80, 0x3f, 0, 0, 0, 0x80]);
    }
}
