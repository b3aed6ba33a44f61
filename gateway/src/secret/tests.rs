//! Redaction as a property: any split, any form, the same result; and no value in any text.
