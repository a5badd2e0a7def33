# Writes version.hpp with the present git hash ("+" where files differ from it); run by the build.
execute_process(COMMAND git -C ${SOURCE} describe --always --dirty=+ --abbrev=12 --exclude=*
                OUTPUT_VARIABLE GYR_GIT_HASH OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
if(NOT GYR_GIT_HASH)
  set(GYR_GIT_HASH unknown)
endif()
configure_file(${IN} ${OUT} @ONLY)
