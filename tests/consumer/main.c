#include <stdio.h>
#include <string.h>

#include "longhaul/longhaul.h"

int main(void) {
  lh_attention_args args;
  int32_t threads = 0;
  const char* isa = "";
  if (lh_abi_version() != LH_ABI_VERSION || strcmp(lh_version(), LONGHAUL_VERSION) != 0) {
    fprintf(stderr, "header and library differ\n");
    return 1;
  }
  if (lh_attention_args_init(&args, sizeof(args)) != LH_OK || lh_default_threads(&threads) != LH_OK ||
      lh_isa(&isa) != LH_OK) {
    fprintf(stderr, "error: %s\n", lh_last_error());
    return 1;
  }
  if (lh_prefill(&args) != LH_INVALID_ARGUMENT || strlen(lh_last_error()) == 0) {
    fprintf(stderr, "arguments without tensors were accepted\n");
    return 1;
  }
  printf("%s, %d threads: %s\n", isa, (int)threads, lh_last_error());
  return 0;
}
