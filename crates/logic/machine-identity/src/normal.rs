//! The normal form of each kind of evidence, and what is none though it looks like some.
//!
//! Firmware that was never given a value shows a placeholder (SMBIOS reference specification, DSP0134, 6.1: an unset string or UUID);
//! such a value is the same on many machines, and so absent here.

/// Texts that boards and BMCs show for want of a serial number, in normal form. Collected from SMBIOS tables in the wild.
const PLACEHOLDERS: [&str; 24] = [
    "0123456789",
    "1234567890",
    "123456789",
    "012345678",
    "TOBEFILLEDBYO.E.M.",
    "TOBEFILLEDBYO.E.M",
    "TOBEFILLEDBYOEM",
    "O.E.M.",
    "OEM",
    "DEFAULTSTRING",
    "DEFAULT",
    "SYSTEMSERIALNUMBER",
    "SERIALNUMBER",
    "NONE",
    "NULL",
    "N/A",
    "NA",
    "NOTSPECIFIED",
    "NOTAPPLICABLE",
    "NOTAVAILABLE",
    "NOTPRESENT",
    "UNKNOWN",
    "INVALID",
    "EMPTY",
];

/// AMI's default UUID, which boards keep whose maker gave them none.
const AMI_DEFAULT: &str = "03000200040005000006000700080009";

/// Longest text that is looked at, in bytes.
const LONGEST: usize = 256;

/// A UUID in normal form: 32 hexadecimal digits in upper case. Firmware and BMCs disagree on the order of bytes (DSP0134, 7.2.1): some
/// swap the first three fields, some reverse the whole. The least of all forms that come of doing so stands for them.
#[must_use]
pub fn uuid(text: &str) -> Option<String> {
    let text = text.trim();
    if text.len() > LONGEST {
        return None;
    }
    let text = text.to_ascii_lowercase();
    let text = text.strip_prefix("urn:uuid:").unwrap_or(&text);
    let digits: String = text.chars().filter(|c| !matches!(c, '-' | '{' | '}' | ' ')).collect();
    let least = least_form(decode(&digits)?);
    let blank = is_one_character(&digits) || decode(AMI_DEFAULT).map(least_form) == Some(least);
    (!blank).then(|| hex::encode_upper(least))
}

/// Whether the text is written as a UUID, a placeholder or not.
#[must_use]
pub fn is_uuid(text: &str) -> bool {
    let digits: String = text.chars().filter(|c| !matches!(c, '-' | '{' | '}' | ' ')).take(LONGEST).collect();
    decode(&digits.to_ascii_lowercase()).is_some()
}

type Uuid = [u8; 16];

/// Swapping is undone by swapping, reversing by reversing: together they make eight forms, of which each leads to the same eight.
fn least_form(bytes: Uuid) -> Uuid {
    let tail_swapped = reversed(swapped(reversed(bytes)));
    let forms = [bytes, swapped(bytes), tail_swapped, swapped(tail_swapped)];
    forms.into_iter().flat_map(|form| [form, reversed(form)]).min().unwrap_or(bytes)
}

fn swapped(mut bytes: Uuid) -> Uuid {
    bytes[..4].reverse();
    bytes[4..6].reverse();
    bytes[6..8].reverse();
    bytes
}

fn reversed(mut bytes: Uuid) -> Uuid {
    bytes.reverse();
    bytes
}

fn decode(digits: &str) -> Option<Uuid> {
    let mut bytes = [0; 16];
    hex::decode_to_slice(digits, &mut bytes).ok()?;
    Some(bytes)
}

/// A serial number or WWN in normal form: upper case, no white space.
#[must_use]
pub fn serial(text: &str) -> Option<String> {
    if text.len() > LONGEST {
        return None;
    }
    let text: String = text.chars().filter(|c| !c.is_whitespace() && !c.is_control()).collect();
    let text = text.to_uppercase();
    let fill = |c: char| matches!(c, '.' | '-' | '_' | ':' | '*');
    let bare: String = text.chars().filter(|c| !fill(*c)).collect();
    (!is_one_character(&bare) && !PLACEHOLDERS.contains(&text.as_str())).then_some(text)
}

/// Empty, or one character again and again.
fn is_one_character(text: &str) -> bool {
    let mut characters = text.chars();
    let Some(first) = characters.next() else { return true };
    characters.all(|c| c == first)
}

/// An Ethernet address in normal form: 12 hexadecimal digits in upper case. Locally administered and group addresses are no evidence:
/// hosts make them up (bonds, virtual functions, the BMC's own USB interface).
#[must_use]
pub fn mac(text: &str) -> Option<String> {
    let text = text.trim();
    if text.len() > LONGEST {
        return None;
    }
    let digits: String = text.chars().filter(|c| !matches!(c, ':' | '-' | '.')).collect();
    let mut bytes = [0u8; 6];
    hex::decode_to_slice(&digits, &mut bytes).ok()?;
    let made_up = bytes[0] & 0b11 != 0;
    (!made_up && !is_one_character(&digits)).then(|| hex::encode_upper(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uuid_equals_its_swapped_and_reversed_forms_whatever_its_case() {
        let forms = [
            "4C4C4544-0047-3710-8051-B4C04F4A3132",
            "4c4c4544-0047-3710-8051-b4c04f4a3132",
            "{4c4c4544-0047-3710-8051-b4c04f4a3132}",
            "urn:uuid:4c4c4544-0047-3710-8051-b4c04f4a3132",
            " 4c4c4544004737108051b4c04f4a3132 ",
            "44454c4c-4700-1037-8051-b4c04f4a3132",
            "32314a4f-c0b4-5180-1037-470044454c4c",
        ];
        let all: Vec<_> = forms.map(uuid).into();
        assert!(all[0].is_some());
        assert!(all.iter().all(|one| *one == all[0]), "{all:?}");
        assert_ne!(uuid("4C4C4544-0047-3710-8051-B4C04F4A3133"), all[0]);
    }

    #[test]
    fn placeholders_are_no_uuids() {
        for none in [
            "",
            "00000000-0000-0000-0000-000000000000",
            "FFFFFFFF-FFFF-FFFF-FFFF-FFFFFFFFFFFF",
            "ffffffff-ffff-ffff-ffff-ffffffffffff",
            "11111111-1111-1111-1111-111111111111",
            "03000200-0400-0500-0006-000700080009",
            "00020003-0004-0005-0006-000700080009",
            "not a uuid",
            "4C4C4544-0047-3710-8051",
            "None",
        ] {
            assert_eq!(uuid(none), None, "{none}");
        }
    }

    #[test]
    fn placeholders_are_no_serial_numbers() {
        for none in [
            "",
            "   ",
            "0000000000",
            "XXXXXXXX",
            "0123456789",
            "To be filled by O.E.M.",
            "To Be Filled By O.E.M.",
            "Default string",
            "None",
            "N/A",
            "........",
            "---",
            "0",
        ] {
            assert_eq!(serial(none), None, "{none}");
        }
        assert_eq!(serial(" abc 123\n").as_deref(), Some("ABC123"));
        assert_eq!(serial("0123456789A").as_deref(), Some("0123456789A"));
    }

    #[test]
    fn made_up_addresses_are_no_evidence() {
        assert_eq!(mac("00:1b:21:AA:bb:cc").as_deref(), Some("001B21AABBCC"));
        assert_eq!(mac("00-1B-21-AA-BB-CC").as_deref(), Some("001B21AABBCC"));
        for none in [
            "",
            "00:00:00:00:00:00",
            "ff:ff:ff:ff:ff:ff",
            "52:54:00:12:34:56",
            "01:00:5e:00:00:01",
            "00:1b:21:aa:bb",
            "x",
        ] {
            assert_eq!(mac(none), None, "{none}");
        }
    }
}
