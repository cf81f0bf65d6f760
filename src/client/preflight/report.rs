//! The report of a preflight: what was found, how severe it is, and what to do about it.

use std::fmt;

/// How severe a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Severity {
    /// As it should be.
    Ok,
    /// Worth knowing: something that this server does not provide.
    Note,
    /// Locks work, but this can lose them.
    Warning,
    /// Locks do not work.
    Error,
}

impl Severity {
    /// `ok`, `note`, `warning` or `error`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Note => "note",
            Self::Warning => "warning",
            Self::Error => "error",
        }
    }
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// The result of one check of a preflight.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Finding {
    /// How severe it is.
    pub severity: Severity,
    /// What it is about: `server`, `role`, `replication`, `persistence`, `memory`, `cluster`,
    /// `clock`, `permissions`, `scripts`, `channels` or `key`.
    pub topic: &'static str,
    /// What was found.
    pub found: String,
    /// What to do about it, if something can be done.
    pub fix: Option<String>,
}

/// What [`LockClient::preflight`](crate::LockClient::preflight) found, or
/// [`preflight_latch`](crate::LockClient::preflight_latch). As text, it begins with a line with the
/// name of the lock or latch and the highest severity. The findings follow, the most severe
/// ones first, each on a line of its own; if there is a fix, it is on the next line.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
#[must_use = "problems of the server are in the report: ask `is_usable`"]
pub struct PreflightReport {
    /// The name of the lock or latch.
    pub name: String,
    /// What it is a name of.
    what: &'static str,
    /// In the order in which they were found.
    pub findings: Vec<Finding>,
}

impl PreflightReport {
    pub(super) fn new(what: &'static str, name: &str) -> Self {
        Self { name: name.to_owned(), what, findings: Vec::new() }
    }

    /// The severity of the most severe finding.
    pub fn severity(&self) -> Severity {
        self.findings.iter().map(|finding| finding.severity).max().unwrap_or(Severity::Ok)
    }

    /// Whether the lock or latch works: there is no [`Severity::Error`].
    pub fn is_usable(&self) -> bool {
        self.severity() < Severity::Error
    }

    /// The findings about a topic.
    pub fn about(&self, topic: &str) -> impl Iterator<Item = &Finding> {
        self.findings.iter().filter(move |finding| finding.topic == topic)
    }

    pub(super) fn ok(&mut self, topic: &'static str, found: impl Into<String>) {
        self.add(Severity::Ok, topic, found.into(), None);
    }

    pub(super) fn note(
        &mut self,
        topic: &'static str,
        found: impl Into<String>,
        fix: Option<&str>,
    ) {
        self.add(Severity::Note, topic, found.into(), fix.map(str::to_owned));
    }

    pub(super) fn warn(&mut self, topic: &'static str, found: impl Into<String>, fix: &str) {
        self.add(Severity::Warning, topic, found.into(), Some(fix.to_owned()));
    }

    pub(super) fn error(
        &mut self,
        topic: &'static str,
        found: impl Into<String>,
        fix: Option<String>,
    ) {
        self.add(Severity::Error, topic, found.into(), fix);
    }

    fn add(&mut self, severity: Severity, topic: &'static str, found: String, fix: Option<String>) {
        self.findings.push(Finding { severity, topic, found, fix });
    }
}

impl fmt::Display for PreflightReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "preflight of {} {:?}: {}", self.what, self.name, self.severity())?;
        let mut sorted: Vec<&Finding> = self.findings.iter().collect();
        sorted.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
        for Finding { severity, topic, found, fix } in sorted {
            write!(f, "\n  {severity:<8}{topic:<13}{found}")?;
            if let Some(fix) = fix {
                write!(f, "\n{:23}fix: {fix}", "")?;
            }
        }
        Ok(())
    }
}
