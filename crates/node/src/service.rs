//! What a listener of this program serves, told to a client of another service by the code that ends its session.

/// The first of the codes: "only".
const FIRST_CODE: u64 = 0x6f6e_6c79;

/// One service of a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Service {
    /// `recv` and `serve`.
    Files,
    /// `perf -s`.
    Tests,
    /// `proxy serve`.
    Proxy,
}

impl Service {
    /// The code of a session that asks for another one.
    pub fn code(self) -> u64 {
        FIRST_CODE + self as u64
    }

    /// Which one ends a session with this code.
    pub fn of(code: u64) -> Option<Self> {
        [Self::Files, Self::Tests, Self::Proxy].into_iter().find(|service| service.code() == code)
    }

    /// The commands that serve it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Files => "noctule recv or serve",
            Self::Tests => "noctule perf -s",
            Self::Proxy => "noctule proxy serve",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_service_is_known_by_its_code() {
        for service in [Service::Files, Service::Tests, Service::Proxy] {
            assert_eq!(Service::of(service.code()), Some(service));
        }
        assert_eq!([Service::of(1), Service::of(0)], [None, None]);
    }
}
