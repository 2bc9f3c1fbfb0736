#pragma once

namespace bertha {

/// The first of `features` (named as in kCompiledFeatures, terminated by null) that this processor
/// lacks; null = none. Can be called first in main(): uses no instruction that a processor might
/// lack and does not allocate.
const char* missing_feature(const char* const* features);

}  // namespace bertha
