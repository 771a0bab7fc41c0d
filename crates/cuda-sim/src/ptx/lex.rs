//! The lexer: from PTX text to words and punctuation.

/// A piece of text and the line it stands on, counted from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Token<'t> {
    pub text: &'t str,
    pub line: u32,
}

/// Splits at blanks and punctuation and drops comments. Dots belong to words (`ld.global.v4.f32`), so does `::`
/// (`L1::no_allocate`); a single colon ends a label.
pub(crate) fn tokens(text: &str) -> Result<Vec<Token<'_>>, (u32, String)> {
    let mut out = Vec::new();
    let (mut rest, mut line) = (text, 1);
    while let Some(first) = rest.chars().next() {
        let len = match first {
            '\n' => {
                line += 1;
                rest = &rest[1..];
                continue;
            }
            c if c.is_ascii_whitespace() => {
                rest = &rest[1..];
                continue;
            }
            '/' if rest.starts_with("//") => {
                rest = &rest[rest.find('\n').unwrap_or(rest.len())..];
                continue;
            }
            '/' if rest.starts_with("/*") => {
                let end = rest.find("*/").ok_or((line, "comment without an end".to_string()))? + 2;
                line += rest[..end].matches('\n').count() as u32;
                rest = &rest[end..];
                continue;
            }
            '"' => 2 + rest[1..].find(['"', '\n']).ok_or((line, "string without an end".to_string()))?,
            c if is_word(c) => word_len(rest),
            c if "{}[](),;@!+-=<>|:".contains(c) => 1,
            c => return Err((line, format!("unexpected character {c:?}"))),
        };
        out.push(Token { text: &rest[..len], line });
        rest = &rest[len..];
    }
    Ok(out)
}

fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || "_$%.".contains(c)
}

fn word_len(text: &str) -> usize {
    let mut len = 0;
    loop {
        len += text[len..].find(|c| !is_word(c)).unwrap_or(text.len() - len);
        if !text[len..].starts_with("::") {
            return len;
        }
        len += 2;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_keep_dots_and_lines_are_counted() {
        let text =
            "// c\n.reg .b32 %r<3>;\n$L1: /* a\nb */ @!%p1 ld.global.L1::no_allocate.u32 %r1, [%rd1+-8];";
        let found = tokens(text).unwrap();
        let words: Vec<_> = found.iter().map(|token| token.text).collect();
        let expected =
            ".reg .b32 %r < 3 > ; $L1 : @ ! %p1 ld.global.L1::no_allocate.u32 %r1 , [ %rd1 + - 8 ] ;";
        assert_eq!(words.join(" "), expected);
        assert_eq!(found.iter().find(|token| token.text == "@").unwrap().line, 4);
    }

    #[test]
    fn what_is_not_ptx_is_refused() {
        assert_eq!(tokens("a\n#").unwrap_err().0, 2);
        assert!(tokens("/* a").is_err() && tokens("\"a").is_err() && tokens("é").is_err());
    }
}
