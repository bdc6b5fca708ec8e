//! The length of an RSA public key, from its DER text (RFC 8017, A.1.1) or its modulus.
use jsonwebtoken::{DecodingKey, DecodingKeyKind};

const SEQUENCE: u8 = 0x30;
const INTEGER: u8 = 0x02;

/// Bits of the modulus; `None` when the key is not an RSA public key.
pub(crate) fn modulus_bits(key: &DecodingKey) -> Option<usize> {
    match key.kind() {
        DecodingKeyKind::RsaModulusExponent { n, .. } => Some(bits(n)),
        DecodingKeyKind::SecretOrDer(der) => {
            let (members, rest) = value(SEQUENCE, der)?;
            let (modulus, members) = value(INTEGER, members)?;
            let (_exponent, more) = value(INTEGER, members)?;
            // A private key has more members.
            (rest.is_empty() && more.is_empty()).then(|| bits(modulus))
        }
    }
}

/// The contents of the first value, and what follows it.
fn value(tag: u8, der: &[u8]) -> Option<(&[u8], &[u8])> {
    let (&[found, first], rest) = der.split_first_chunk::<2>()?;
    if found != tag {
        return None;
    }
    if first < 0x80 {
        return rest.split_at_checked(first.into());
    }
    let (digits, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
    let length = digits.iter().try_fold(0_usize, |sum, digit| sum.checked_mul(256)?.checked_add((*digit).into()))?;
    rest.split_at_checked(length)
}

fn bits(number: &[u8]) -> usize {
    let digits = number.iter().skip_while(|byte| **byte == 0);
    let leading = digits.clone().next().map_or(0, |byte| byte.leading_zeros() as usize);
    digits.count() * 8 - leading
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_length_counts_from_the_first_bit_that_is_set() {
        let key = |modulus: &[u8]| modulus_bits(&DecodingKey::from_rsa_raw_components(modulus, &[1, 0, 1]));
        assert_eq!(key(&[0, 0x80, 0]), Some(16));
        assert_eq!(key(&[1; 128]), Some(1_017));
        assert_eq!(key(&[]), Some(0));
        let der = |der: &[u8]| modulus_bits(&DecodingKey::from_rsa_der(der));
        assert_eq!(der(&[0x30, 7, 2, 2, 0, 0xff, 2, 1, 3]), Some(8));
        assert_eq!(der(&[0x30, 0x81, 7, 2, 2, 0, 0xff, 2, 1, 3]), Some(8));
        for broken in [&[][..], &[0x30], &[0x30, 9, 2, 1, 1], &[0x30, 0xff, 1], &[0x30, 9, 2, 1, 0, 2, 1, 3, 2, 1, 1]] {
            assert_eq!(der(broken), None, "{broken:?}");
        }
    }
}
