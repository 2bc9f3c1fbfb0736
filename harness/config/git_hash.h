#pragma once

namespace bertha {

/// The commit that this program was built from, as in BuildInfo::git_hash.
const char* git_hash();

}  // namespace bertha
