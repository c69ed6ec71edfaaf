//! Padding of the last source packet (RFC 9426 §2.2.1, figures 2 and 3).

/// Writes the padding octets 1, 2, 2, 3, 3, 3 … into `padding` (figure 2).
pub fn write_padding(padding: &mut [u8]) {
    let (mut run, mut left) = (1u8, 1u32);
    for octet in padding {
        *octet = run;
        left -= 1;
        if left == 0 {
            run = run.wrapping_add(1);
            left = u32::from(run);
        }
    }
}

/// Number of padding octets at the end of the last source packet, or `None` if it does not end in padding.
///
/// Figure 3 computes `(1 + v) · v + rest`; the sum of 1 … v is half of that product (docs/spec/errata.md, E4).
pub fn padding_len(last: &[u8]) -> Option<usize> {
    let &run = last.last()?;
    let rest = last.iter().rev().take_while(|octet| **octet == run).count();
    let before = usize::from(run.checked_sub(1)?);
    let len = before * (before + 1) / 2 + rest;
    // Only what the encoder would have written is padding.
    let padding = last.get(last.len().checked_sub(len)?..)?;
    let (mut value, mut left) = (1u8, 1u32);
    for octet in padding {
        if *octet != value {
            return None;
        }
        left -= 1;
        if left == 0 {
            value = value.wrapping_add(1);
            left = u32::from(value);
        }
    }
    Some(len)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_padding_length_is_found_again() {
        for len in 1..2000 {
            let mut packet = [9u8; 2000];
            write_padding(&mut packet[2000 - len..]);
            assert_eq!(padding_len(&packet), Some(len));
        }
        assert_eq!(padding_len(&[]), None);
        assert_eq!(padding_len(&[5, 0]), None);
        assert_eq!(padding_len(&[2, 2]), None, "a run of 2 must follow a 1");
    }

    #[test]
    fn the_formula_of_figure_3_would_be_wrong_from_two_octets_on() {
        let mut packet = [0u8; 4];
        write_padding(&mut packet[2..]);
        assert_eq!(packet, [0, 0, 1, 2]);
        // PL = 2, WI stops at index 2 with value 1: (1 + 1)·1 + 4 - 2 - 1 = 3, but two octets were added.
        assert_eq!(((1 + 1) + 4 - 2 - 1, padding_len(&packet)), (3, Some(2)));
    }
}
