//! PNG files of 24-bit pixels: a header, one run of compressed rows, and an end, each with its checksum.

use miniz_oxide::deflate::compress_to_vec_zlib;

/// Compression from 0 to 10: pictures of lines and areas hardly become smaller above this.
const LEVEL: u8 = 4;

/// A picture of rows from top to bottom, three bytes per pixel.
pub fn encode(pixels: &[u8], (width, height): (u32, u32)) -> Vec<u8> {
    let row_bytes = 3 * width as usize;
    let mut header = Vec::new();
    header.extend(width.to_be_bytes());
    header.extend(height.to_be_bytes());
    // Eight bits per channel, red green blue, the only compression and filter there are, no interlacing.
    header.extend([8, 2, 0, 0, 0]);
    // Every row as its difference from the one above: lines and areas become zeros.
    let mut filtered = Vec::with_capacity((row_bytes + 1) * height as usize);
    let mut above = vec![0; row_bytes];
    for row in pixels.chunks_exact(row_bytes) {
        filtered.push(UP);
        filtered.extend(row.iter().zip(&above).map(|(byte, above)| byte.wrapping_sub(*above)));
        above.copy_from_slice(row);
    }
    let mut file = b"\x89PNG\r\n\x1a\n".to_vec();
    chunk(&mut file, b"IHDR", &header);
    chunk(&mut file, b"IDAT", &compress_to_vec_zlib(&filtered, LEVEL));
    chunk(&mut file, b"IEND", &[]);
    file
}

/// The filter that subtracts the row above.
const UP: u8 = 2;

fn chunk(file: &mut Vec<u8>, kind: &[u8; 4], data: &[u8]) {
    file.extend((data.len() as u32).to_be_bytes());
    let start = file.len();
    file.extend(kind);
    file.extend(data);
    let sum = checksum(&file[start..]);
    file.extend(sum.to_be_bytes());
}

/// The cyclic redundancy check of ISO 3309, as the format prescribes.
fn checksum(bytes: &[u8]) -> u32 {
    const TABLE: [u32; 256] = {
        let mut table = [0; 256];
        let mut index = 0;
        while index < 256 {
            let mut value = index as u32;
            let mut bit = 0;
            while bit < 8 {
                value = if value & 1 == 1 { 0xedb8_8320 ^ (value >> 1) } else { value >> 1 };
                bit += 1;
            }
            table[index] = value;
            index += 1;
        }
        table
    };
    !bytes.iter().fold(!0, |sum: u32, byte| TABLE[(sum as u8 ^ byte) as usize] ^ (sum >> 8))
}

#[cfg(test)]
mod tests {
    use super::*;
    use miniz_oxide::inflate::decompress_to_vec_zlib;

    #[test]
    fn checksums_are_those_of_the_standard() {
        assert_eq!(checksum(b"123456789"), 0xcbf4_3926);
        assert_eq!(checksum(b"IEND"), 0xae42_6082);
    }

    #[test]
    fn what_is_read_back_is_what_was_drawn() {
        let (width, height) = (37, 23);
        let pixels: Vec<u8> = (0..3 * width * height).map(|i| (i * i / 7) as u8).collect();
        let file = encode(&pixels, (width, height));
        let mut rest = &file[8..];
        let mut found = Vec::new();
        for expected in [b"IHDR", b"IDAT", b"IEND"] {
            let length = u32::from_be_bytes(rest[..4].try_into().unwrap()) as usize;
            assert_eq!(&rest[4..8], expected);
            let sum = u32::from_be_bytes(rest[8 + length..12 + length].try_into().unwrap());
            assert_eq!(sum, checksum(&rest[4..8 + length]));
            found.push(&rest[8..8 + length]);
            rest = &rest[12 + length..];
        }
        assert_eq!(found[0], [0, 0, 0, 37, 0, 0, 0, 23, 8, 2, 0, 0, 0]);
        assert!(rest.is_empty() && found[2].is_empty());
        let rows = decompress_to_vec_zlib(found[1]).unwrap();
        let mut above = vec![0_u8; 3 * width as usize];
        for (row, expected) in rows.chunks(1 + above.len()).zip(pixels.chunks(above.len())) {
            assert_eq!(row[0], UP);
            above.iter_mut().zip(&row[1..]).for_each(|(above, byte)| *above = above.wrapping_add(*byte));
            assert_eq!(above, expected);
        }
        assert_eq!(rows.len(), (1 + above.len()) * height as usize);
    }
}
