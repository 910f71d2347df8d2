/* What liblonghaul exports; everything else is hidden. */
#pragma once

#define LONGHAUL_API __attribute__((visibility("default")))
