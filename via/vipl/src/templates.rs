//! Messages that are registered nowhere, and messages that are prebuilt: for interfaces whose sends lie in an adapter's
//! memory.

use std::sync::{Arc, Mutex};

use crate::device::lock;
use crate::handles::{Kind, Table};
use crate::post;
use crate::types::{Descriptor, Handle, Return};
use crate::vi::{self, Vi};

static TEMPLATES: Table<Template> = Table::new(Kind::Template);

struct Template {
    /// The interface that it is of.
    vi: Handle,
    template: Mutex<uvia::Template>,
}

// SAFETY: the handle is a number, which is never followed.
unsafe impl Send for Template {}
// SAFETY: as above.
unsafe impl Sync for Template {}

/// The interface of a handle, if it is of this class.
fn pio(handle: Handle) -> Result<Arc<Vi>, Return> {
    let vi = vi::find(handle).ok_or(Return::InvalidParameter)?;
    if vi.is_pio() { Ok(vi) } else { Err(Return::NotSupported) }
}

fn find(handle: Handle) -> Result<Arc<Template>, Return> {
    TEMPLATES.get(handle).ok_or(Return::InvalidParameter)
}

/// What is wrong with a message or a patch.
fn wrong(error: &uvia::Error) -> Return {
    match error {
        uvia::Error::TooLong { .. } => Return::InvalidMtu,
        uvia::Error::Resource { .. } => Return::ErrorResource,
        _ => Return::InvalidParameter,
    }
}

/// VipxPostInject.
pub(crate) fn inject(
    vi: Handle,
    descriptor: *mut Descriptor,
    memory: u32,
    bytes: &[u8],
) -> Result<(), Return> {
    let vi = pio(vi)?;
    post::post_beside(&vi, descriptor, memory, |vi, work| vi.inject(work, bytes))
}

/// VipxCreateTemplate.
pub(crate) fn create(vi: Handle, message: &[u8]) -> Result<Handle, Return> {
    let template = Mutex::new(pio(vi)?.vi.template(message).map_err(|e| wrong(&e))?);
    let (handle, _) = TEMPLATES.insert(|_| Template { vi, template }).ok_or(Return::ErrorResource)?;
    Ok(handle)
}

/// VipxPatchTemplate.
pub(crate) fn patch(template: Handle, offset: usize, bytes: &[u8]) -> Result<(), Return> {
    lock(&find(template)?.template).patch(offset, bytes).map_err(|e| wrong(&e))
}

/// VipxPostTemplate.
pub(crate) fn send(template: Handle, descriptor: *mut Descriptor, memory: u32) -> Result<(), Return> {
    let template = find(template)?;
    let vi = pio(template.vi)?;
    post::post_beside(&vi, descriptor, memory, |vi, work| {
        vi.send_template(&mut lock(&template.template), work)
    })
}

/// VipxDestroyTemplate.
pub(crate) fn destroy(template: Handle) -> Result<(), Return> {
    TEMPLATES.remove(template).map(drop).ok_or(Return::InvalidParameter)
}
